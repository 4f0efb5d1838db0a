"""Measurements that were made here, kept in an embedded database, exported and imported as JSON."""
