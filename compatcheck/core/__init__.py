"""Value types and the few pure helpers everything else needs."""
