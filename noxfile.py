"""Sessions for contributors: ``nox`` runs the tests and the linters, as continuous integration does."""

from __future__ import annotations

import nox

nox.options.default_venv_backend = "uv|venv"
nox.options.sessions = ["tests", "more", "lint", "types", "imports"]


@nox.session(python=["3.10", "3.11", "3.12", "3.13"])
def tests(session: nox.Session) -> None:
    """Run the fast tests; arguments go to pytest (``nox -s tests-3.11 -- -m versions``)."""
    session.install("-c", "constraints.txt", "-e", ".[test,audit]", "hatchling>=1.27")
    session.run("pytest", *session.posargs)


@nox.session(python="3.11")
def more(session: nox.Session) -> None:
    """Run what the fast tests leave out: hooks, uv, a cluster of Ray, a few installed releases (the same script as `.ci/run`)."""
    session.install("pip", "-c", "constraints.txt", "-e", ".[test]")
    session.run(".ci/more", external=True)


@nox.session(python="3.10", venv_backend="uv")
def floors(session: nox.Session) -> None:
    """Run the fast tests with the oldest dependencies that are allowed (needs uv, which can choose them)."""
    session.install("--resolution", "lowest-direct", "-c", "constraints.txt", "-e", ".[test]")
    session.run("pytest", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Check format, style and spelling."""
    session.install("ruff", "typos")
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")
    session.run("typos")


@nox.session
def types(session: nox.Session) -> None:
    """Check types."""
    session.install("mypy", "types-PyYAML", "hatchling", "-e", ".")
    session.run("mypy")


@nox.session
def imports(session: nox.Session) -> None:
    """Check that imports follow the layers."""
    session.install("import-linter>=2.16", "-e", ".[test]")
    session.run("lint-imports")
    session.run("pytest", "-m", "", "tests/unit/test_import_contracts.py")


@nox.session
def rules(session: nox.Session) -> None:
    """Lint every rule."""
    session.install("-e", ".")
    session.run("compatcheck", "rules", "lint")
