"""Requirements."""
