"""Rényi divergences and exact zCDP constants that families share, all rounded up.

A mechanism's own curve is its method ``_renyi``; the public function is :func:`jaxacct.losses.renyi.renyi`. Imports
pairs and numerics.
"""
