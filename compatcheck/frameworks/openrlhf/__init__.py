"""OpenRLHF: the command lines of its training scripts."""
