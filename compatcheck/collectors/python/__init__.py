"""Python environments on disk: their interpreter, installed distributions and compiled components."""
