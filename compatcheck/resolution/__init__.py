"""Merge documents into facts: precedence, auto, defaults, derived values."""
