"""The probes: one file each, self-contained, importing nothing of compatcheck and nothing heavy at the top."""
