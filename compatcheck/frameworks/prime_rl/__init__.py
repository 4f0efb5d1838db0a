"""prime-rl: its files, and commands that name them."""
