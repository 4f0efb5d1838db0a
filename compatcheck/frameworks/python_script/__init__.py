"""Training scripts in Python: what they pass to trainers, configurations and models, read without running them."""
