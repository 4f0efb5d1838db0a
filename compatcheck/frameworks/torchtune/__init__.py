"""Torchtune."""
