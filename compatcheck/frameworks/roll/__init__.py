"""ROLL: its files, and the commands that name one."""
