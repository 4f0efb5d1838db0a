"""Exact parameter counts per component from a model configuration."""
