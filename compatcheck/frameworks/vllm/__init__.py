"""vLLM as a server of its own."""
