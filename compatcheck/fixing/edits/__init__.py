"""Changes of people's files: one value at a time, with everything else kept as it is."""
