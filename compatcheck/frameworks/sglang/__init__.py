"""SGLang as a server of its own."""
