"""Local packages for every test of the laboratory."""

from tests.unit.lab.local_packages import base, index, overlays, probe, tree

__all__ = ["base", "index", "overlays", "probe", "tree"]
