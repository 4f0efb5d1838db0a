"""Container images, read without a daemon, a network or a place to unpack them to."""
