"""Conda."""
