"""One module per input that yields an environment or hardware."""
