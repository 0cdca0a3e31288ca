"""Pairs of output distributions in exact numbers, one kind a file."""
