"""Verl."""
