"""The rule format: expressions, vocabulary, loading, linting and the compiled database."""
