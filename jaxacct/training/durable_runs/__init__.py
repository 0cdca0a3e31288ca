"""Training runs whose budget survives being killed: run, journal, checkpoints."""
