"""Lock files of Python projects: PDM, Pipenv, poetry, PEP 751 and uv."""
