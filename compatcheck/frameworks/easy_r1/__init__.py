"""EasyR1: its files, and overrides on command lines."""
