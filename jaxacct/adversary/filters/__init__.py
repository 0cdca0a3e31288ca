"""Filters of theoretical interest, whose guarantees are far above their budgets. They import from `jaxacct.filters`."""
