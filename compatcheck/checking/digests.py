"""Digests of the files that the options of a command name, and of those that these name: what makes two runs one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compatcheck.checking.shared import read_shared
from compatcheck.core.files import ReadLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.checking.request import Request
    from compatcheck.rules.database import RuleSet

_DIGITS = 12


def digest_named(request: Request, rules: RuleSet, environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return the digests of the files that a request names beside its inputs, and of those that these name, by path."""
    log = ReadLog(request.files)
    shared = read_shared(request._replace(files=log), rules, environ)
    if shared.documents:
        from compatcheck.frameworks.recognise import follow_references  # noqa: PLC0415 (only with configurations)

        follow_references(shared.documents, rules, environ, log)
    named = (*request.training, *filter(None, (request.env_file,)))
    beside = log.read.difference(map(os.path.realpath, named))
    return {path: digest_file(path) for path in sorted((*map(os.path.abspath, named), *beside))}


def digest_file(path: str) -> str | None:
    """Return the first digits of a file's SHA-256; None where it cannot be read."""
    from hashlib import sha256  # noqa: PLC0415 (only for a dump)

    digest = sha256()
    try:
        with open(path, "rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
    except OSError:
        return None
    return digest.hexdigest()[:_DIGITS]
