"""TRL: the arguments of its trainers in files, `trl sft` and scripts of one's own."""
