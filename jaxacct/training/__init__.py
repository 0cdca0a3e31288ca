"""DP-SGD with Flax and optax under a filter."""
