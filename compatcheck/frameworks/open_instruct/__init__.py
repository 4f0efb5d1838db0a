"""open-instruct: its files, and the command lines of its scripts."""
