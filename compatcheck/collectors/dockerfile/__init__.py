"""Dockerfiles: the packages and variables that a build leaves in its last stage, or in a chosen one."""
