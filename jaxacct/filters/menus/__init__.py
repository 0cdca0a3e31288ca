"""Filters for declared queries: prices certified on a table of budgets (`menu`)."""
