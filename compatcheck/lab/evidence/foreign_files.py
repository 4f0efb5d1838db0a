"""Files of measurements made elsewhere, as a person names them for their own store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compatcheck.core.errors import InputError
from compatcheck.core.named_tuple import NamedTuple
from compatcheck.lab.evidence.files import measurement_files
from compatcheck.lab.measurement_files import OtherFileError, read_measurements

if TYPE_CHECKING:
    from collections.abc import Iterable

    from compatcheck.lab.measurement import Measurement


class ForeignMeasurements(NamedTuple):
    """What files hold."""

    measurements: tuple[Measurement, ...]
    files: int
    """How many files they are from."""
    others: int
    """How many files of directories hold something else: other data may stand beside measurements."""
    errors: tuple[InputError, ...]
    """What could not be read, or not whole."""


def read_foreign(paths: Iterable[str]) -> ForeignMeasurements:
    """Read files, and all files below directories; one that cannot be read does not lose the others."""
    read: list[Measurement] = []
    errors: list[InputError] = []
    files = others = 0
    for path in paths:
        try:
            found = measurement_files(path)
        except InputError as error:
            errors.append(error)
            continue
        for file in found:
            try:
                read += read_measurements(file)
                files += 1
            except InputError as error:
                if isinstance(error, OtherFileError) and os.path.isdir(path):
                    others += 1
                else:
                    errors.append(error)
    return ForeignMeasurements(tuple(read), files, others, tuple(errors))
