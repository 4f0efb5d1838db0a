"""Find the line of a key in a configuration file, after the fact: only for facts that end in a finding."""

from __future__ import annotations

from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.source import Source
    from compatcheck.core.textfile import Place

_YAML = (".yaml", ".yml")
_JSON = (".json", ".jsonc", ".hjson")
_TOML = ".toml"


class LineFinder:
    """The lines of the keys of one tree's files; each file is read once."""

    def __init__(self, files: Files = LOCAL) -> None:
        """Find lines in a tree's files."""
        self.files = files
        self._places: dict[str, Mapping[str, int]] = {}

    def with_line(self, source: Source) -> Source:
        """Return the source with its line, when it names a key of a file that can be read and no line yet."""
        path, key = source.path, source.key
        if source.line is not None or key is None:
            return source
        from compatcheck.core.textfile import STANDARD_INPUT  # noqa: PLC0415 (only for keys of files)

        if not (path == STANDARD_INPUT or path.endswith((*_YAML, *_JSON, _TOML))):
            return source
        places = self._places.get(path)
        if places is None:
            places = self._places[path] = self._read(path)
        while key:
            if key in places:
                return source._replace(line=places[key])
            key = key.rpartition(".")[0]
        return source

    def _read(self, path: str) -> Mapping[str, int]:
        from compatcheck.frameworks.text import read_text  # noqa: PLC0415 (only for findings with files)

        try:
            text = read_text(path, self.files)
            if path.endswith(_TOML):
                from compatcheck.core.toml import locate_lines  # noqa: PLC0415 (only for TOML)

                return locate_lines(text)
            return {key: place.line for key, place in locate_keys(text, path).items()}
        except InputError:
            return {}


def locate_keys(text: str, path: str) -> Mapping[str, Place]:
    """Find every key of a YAML, JSON or Hjson text by its dotted path.

    Raises:
        InputError: it cannot be parsed.
    """
    from compatcheck.core.textfile import STANDARD_INPUT  # noqa: PLC0415 (see above)

    if path.endswith(_YAML) or (path == STANDARD_INPUT and not text.lstrip().startswith("{")):
        from compatcheck.core import yaml  # noqa: PLC0415 (only for YAML)

        return yaml.locate_keys(text, path)
    from compatcheck.core import hjson  # noqa: PLC0415 (only for JSON)

    return hjson.locate_keys(text, path)
