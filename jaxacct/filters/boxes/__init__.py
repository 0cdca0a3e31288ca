"""A filter for all sampled Gaussians of a box of noise and rate (`priced_box`): curves, certified prices, look-up."""
