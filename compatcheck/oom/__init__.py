"""Reading of out-of-memory messages."""
