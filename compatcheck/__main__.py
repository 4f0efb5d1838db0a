"""``python -m compatcheck``."""

from compatcheck.cli.__main__ import main

main()
