"""Formats of the checker's reports, one module each, on values of `compatcheck.core` alone."""
