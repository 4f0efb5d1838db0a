"""compatcheck where people already are: notebooks, pytest, a Trainer, an assistant; each on top of `compatcheck.checking`."""
