"""Tests of compatcheck."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The checkout."""
