"""Launch scripts: their commands without the launchers, each read by the program it starts."""
