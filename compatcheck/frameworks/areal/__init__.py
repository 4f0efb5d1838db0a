"""AReaL: its files (OmegaConf), and overrides on command lines."""
