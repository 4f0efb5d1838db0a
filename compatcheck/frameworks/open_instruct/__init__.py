"""Open instruct."""
