"""The filter for sampled Gaussians (`sampled_gaussian`): curves, certified prices, look-up."""
