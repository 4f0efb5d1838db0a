"""Reports of an environment as people paste them: the output of a tool that describes it, found inside a longer text."""
