"""Facts files: a run described in the vocabulary itself."""
