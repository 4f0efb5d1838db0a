"""The commands of the measuring laboratory."""
