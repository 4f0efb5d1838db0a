"""What runs a training step inside the person's interpreter, on fake tensors.

It imports nothing of compatcheck: `trace` starts it by its path and hands it the folder of the probes' worker, whose accounting
and declared decisions it shares (loaded by path as well, as `probe_worker`). Python 3.9 and newer.
"""
