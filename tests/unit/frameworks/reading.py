"""Configurations read by one program's reader, without asking whose they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compatcheck.frameworks.hf_trainer import configuration as hf_trainer
from compatcheck.frameworks.text import parse_configuration, read_text
from compatcheck.frameworks.trl import configuration as trl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.document import Document
    from compatcheck.frameworks.reader import ConfigurationReader, Reading


def read_file(reader: ConfigurationReader, path: str) -> Reading:
    return reader.read(parse_configuration(read_text(path), path), path)


def read_trainer_arguments(data: Mapping[str, Any], path: str) -> tuple[Document, ...]:
    """Read arguments as TRL's where they are, else as the plain Trainer's."""
    return (trl if trl.is_marked(data) else hf_trainer).read(data, path).documents
