"""Probes: small programs that measure one memory claim in any release, and what finds the release that changed it."""
