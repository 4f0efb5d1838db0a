"""LLaMA-Factory: its training files and `llamafactory-cli train`."""
