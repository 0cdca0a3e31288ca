"""Filters that follow a whole curve: residues of a budget after each query, and the natural filter."""
