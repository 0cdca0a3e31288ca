"""Budgets for adaptive analysts: one filter a file, all behind ``init`` and ``update``."""
