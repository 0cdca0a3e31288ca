"""Privacy losses: curves that describe them, engines that compose them, and how they compare."""
