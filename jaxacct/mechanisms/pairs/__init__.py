"""Dominating pairs: the two distributions that are hardest to tell apart, by their tails and largest losses.

A pair gives the tails of its privacy loss; families that share a pair share its file. Imports numerics only.
"""
