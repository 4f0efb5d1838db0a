"""NeMo RL: its files, and commands that name one."""
