"""Torchtitan."""
