"""Where a ledger is kept: SQLite files and PostgreSQL databases behind one protocol."""
