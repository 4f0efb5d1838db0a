"""XTuner: its configurations in Python, and `xtuner train`."""
