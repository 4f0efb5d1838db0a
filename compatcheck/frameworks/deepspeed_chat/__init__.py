"""DeepSpeed-Chat: the command lines of its three training steps."""
