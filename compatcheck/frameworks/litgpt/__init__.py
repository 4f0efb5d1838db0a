"""LitGPT."""
