"""Games of adaptive analysts on finite pairs: their worst cases, and what natural filters cost."""
