"""Data sets, networks and reports for `jaxacct train` and the notebooks."""
