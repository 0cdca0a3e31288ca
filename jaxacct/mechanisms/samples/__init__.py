"""Mechanisms on samples: which records a run sees is drawn."""
