"""SkyRL: command lines of its trainers for reinforcement learning and for supervised training."""
