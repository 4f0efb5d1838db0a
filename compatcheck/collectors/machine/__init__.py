"""Hardware: what this machine has, and the catalogues of GPUs and cloud instances."""
