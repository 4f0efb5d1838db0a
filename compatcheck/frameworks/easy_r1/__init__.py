"""Easy r1."""
