"""Memory from facts alone, one file per component; needs no torch."""
