"""Individual filters: a ledger for each example, charged for its own gradient norm."""
