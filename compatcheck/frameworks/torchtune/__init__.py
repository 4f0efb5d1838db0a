"""torchtune: its recipes' configurations and `tune run`."""
