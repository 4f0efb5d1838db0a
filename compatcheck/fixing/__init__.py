"""Fixing."""
