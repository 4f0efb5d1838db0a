"""Openrlhf."""
