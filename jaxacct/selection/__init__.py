"""Private selection: the best of a random number of runs."""

from jaxacct.selection.private_selection import PrivateSelection

__all__ = ["PrivateSelection"]
