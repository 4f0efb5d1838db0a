"""Services outside this machine: the package index, the advisory database."""
