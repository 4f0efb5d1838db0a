"""Files in which people list packages: requirements, pyproject.toml, setup.py, inline scripts, output of pip."""
