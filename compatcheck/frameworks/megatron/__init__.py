"""Megatron-LM: the command lines of its training scripts."""
