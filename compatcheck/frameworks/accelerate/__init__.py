"""Accelerate."""
