"""What natural filters cost: exact and lattice worst cases, counterexamples, when they are free."""
