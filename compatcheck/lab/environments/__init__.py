"""Interpreters with chosen releases: one base that has torch, and one cached overlay per set of releases."""
