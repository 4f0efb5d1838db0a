"""Readers of what configures a training: one folder per program or library, and the scripts that start them."""
