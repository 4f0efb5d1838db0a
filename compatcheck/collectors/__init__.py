"""Readers of packages, variables and hardware: files that list or describe them, images, and this machine."""
