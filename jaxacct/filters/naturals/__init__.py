"""Natural filters: admit what keeps the composition of the realised path within the budget, where that is sound."""
