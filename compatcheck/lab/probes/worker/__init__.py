"""What runs inside the interpreter under test: it imports torch, and nothing of compatcheck.

The runner starts ``__main__.py`` of this folder by path, so that an interpreter without compatcheck can run it.
"""
