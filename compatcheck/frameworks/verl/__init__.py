"""verl and its forks: Hydra configurations, and overrides on command lines."""
