"""accelerate: its configuration files and the options of `accelerate launch`."""
