"""Hf trainer."""
