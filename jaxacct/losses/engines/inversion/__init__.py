"""Inversion of the Laplace transform of a composed loss, which gives delta and epsilon with bounds on every error."""
