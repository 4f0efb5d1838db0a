"""Locks."""
