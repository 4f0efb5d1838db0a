"""From the commands of a launch script to documents: launchers taken off, flags and overrides read as each program does."""
