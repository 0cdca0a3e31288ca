"""Individual filters: an account for each example, charged for its own gradient norm."""
