"""Discrete laws on either side of a loss: how they are cut, composed two by two, and read."""
