"""Filters that charge by a table of certified prices: `sampled_gaussian` by noise and rate, `menu` by a list."""
