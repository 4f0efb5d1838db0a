"""Find known memory regressions in an installed training stack and its configuration."""

__version__ = "0.1.0"
