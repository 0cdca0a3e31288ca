"""Transforms of the losses of mechanisms along a vertical line, with certified errors; one family a file."""
