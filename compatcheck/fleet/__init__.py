"""Many nodes of one job: what is collected on each, and where they differ."""
