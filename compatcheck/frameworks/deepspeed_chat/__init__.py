"""Deepspeed chat."""
