"""What natural filters cost: worst cases, exact or on a lattice; counterexamples; when the budget is kept ("free")."""
