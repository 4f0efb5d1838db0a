"""Sbom."""
