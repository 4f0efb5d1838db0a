"""Evaluate rules against facts."""
