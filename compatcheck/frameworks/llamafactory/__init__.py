"""Llamafactory."""
