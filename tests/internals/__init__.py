"""Tests of private functions: opt-in (`-m internals`); rewrite or delete them freely when the inside changes."""
