"""DeepSpeed: its configuration, in a file of its own or inside another program's."""
