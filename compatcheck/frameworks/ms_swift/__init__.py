"""Ms swift."""
