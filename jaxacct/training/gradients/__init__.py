"""From per-example gradients to a noisy sum: clipped, summed exactly, noise added."""
