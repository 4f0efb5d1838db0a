"""The language that reports for people are written in: English as the code says it, others by the catalogues of ``locale/``."""

from __future__ import annotations

from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from compatcheck.core.catalogue import Catalogue

LANGUAGES = {"zh": "zh_CN"}
"""Language of ``--lang`` → directory of its catalogues; English needs none."""
_SPOKEN = {"zh": "zh", "zh_cn": "zh", "zh_hans": "zh", "zh_hans_cn": "zh"}
_SPOKEN_FORMATS = {"text", "html"}
"""Formats for people; what machines read, and what is posted where others compare it, is the same in every language."""
_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANGUAGE", "LANG")

_catalogue: Catalogue | None = None
_chosen: str | None = None


def translate(text: str) -> str:
    """Return a sentence in the language spoken now; what no catalogue has stays as it is."""
    return text if _catalogue is None else _catalogue.translate(text)


def choose(language: str | None) -> None:
    """Choose the language of this process; None leaves it to the variables of the environment."""
    global _chosen  # noqa: PLW0603 (a process speaks to one person, as with `gettext.install`)
    _chosen = language


@contextmanager
def speaking(environ: Mapping[str, str], format_name: str = "text") -> Iterator[None]:
    """Speak the language chosen, else that of the environment, while something is written in a format that people read."""
    global _catalogue  # noqa: PLW0603 (see above)
    language = _chosen or find_language(environ)
    before, _catalogue = _catalogue, None
    if language in LANGUAGES and format_name in _SPOKEN_FORMATS:
        from compatcheck.core.catalogue import open_catalogue  # noqa: PLC0415 (only in another language)

        _catalogue = open_catalogue(LANGUAGES[language])
    try:
        yield
    finally:
        _catalogue = before


def find_language(environ: Mapping[str, str]) -> str:
    """Return the language of an environment: the first variable that says one decides, of a list its first."""
    said = next((value for name in _VARIABLES if (value := environ.get(name))), "")
    locale = said.partition(":")[0].partition(".")[0].partition("@")[0]
    return _SPOKEN.get(locale.lower().replace("-", "_"), "en")
