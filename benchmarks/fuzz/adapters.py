"""Parsers that do not take a path, as functions of bytes for `fuzz.py`; what each may raise ends as a `CompatcheckError`."""

from __future__ import annotations

from compatcheck.core.errors import InputError


def read_dpkg(data: bytes) -> None:
    """Read the records of dpkg."""
    from compatcheck.collectors.image.system_packages import read_dpkg as read  # noqa: PLC0415 (one target)

    read(data.decode("utf-8", "replace"), "/var/lib/dpkg/status")


def read_rpm(data: bytes) -> None:
    """Read a database of rpm."""
    from compatcheck.collectors.image.rpm import RpmError, read_rpm_packages  # noqa: PLC0415 (one target)

    try:
        read_rpm_packages(data)
    except RpmError as error:
        raise InputError(str(error)) from None


def read_oom(data: bytes) -> None:
    """Read the messages of a log, with what it mentions."""
    from compatcheck.oom.mentions import read_mentions  # noqa: PLC0415 (one target)
    from compatcheck.oom.message import read_messages  # noqa: PLC0415 (one target)

    log = data.decode("utf-8", "replace")
    read_messages(log)
    read_mentions(log, {"llama-3-8b": ("meta-llama/Meta-Llama-3-8B",)})


def read_configuration(path: str) -> None:
    """Read a configuration of any framework, a launch script or a training script, as one that a person named."""
    from compatcheck.frameworks.recognise import read_configurations  # noqa: PLC0415 (one target)

    read_configurations(path, named=True)
