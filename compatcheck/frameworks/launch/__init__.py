"""What command lines are made of: options, overrides, values, ranks, and the document they become."""
