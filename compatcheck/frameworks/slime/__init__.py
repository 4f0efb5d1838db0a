"""slime: the command lines of its trainers."""
