"""Residue filters: what is left of a budget curve after each query (Privacy Filters are Captured by Residues)."""
