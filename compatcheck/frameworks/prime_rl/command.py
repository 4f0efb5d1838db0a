"""prime-rl's command lines: ``rl @ rl.toml @ over.toml --trainer.model.seq-len 4096 --no-trainer.model.compile``.

Files stand behind ``@``, the later ones over the earlier, options over all of them (prime-pydantic-config 0.4.3). A file behind
the name of a section, ``--trainer @ trainer.toml``, is not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from compatcheck.core.document import Document, Gap
from compatcheck.frameworks.launch import ranks
from compatcheck.frameworks.launch.flags import gaps_of_words, parse_flags
from compatcheck.frameworks.launch.values import Argument
from compatcheck.frameworks.prime_rl import configuration as prime_rl

if TYPE_CHECKING:
    from collections.abc import Iterator

    from compatcheck.core.command import Word
    from compatcheck.frameworks.launch.program import Launch

_MODULES = {
    "prime_rl.entrypoints.rl": "rl",
    "prime_rl.entrypoints.sft": "sft",
    "prime_rl.entrypoints.trainer": "trainer",
    "prime_rl.trainer.rl.train": "trainer",
    "prime_rl.trainer.sft.train": "sft",
}
_TOOLS = {"rl", "sft", "trainer"}
_COUNT = {"torchrun", "accelerate", "deepspeed", "srun", "mpirun"}
_AT = "@"
_NO = "no_"


def recognise(launch: Launch) -> str | None:
    """Tell which of prime-rl's programs a launch starts; its short names count where a file stands behind ``@``."""
    name = launch.program.replace("/", ".").removesuffix(".py").removeprefix("src.")
    if name in _MODULES:
        return _MODULES[name]
    tool = launch.program.partition(" ")[0]
    at = any(word.text == _AT for word in _arguments(launch))
    return tool if launch.kind == "tool" and tool in _TOOLS and at else None


def _arguments(launch: Launch) -> tuple[Word, ...]:
    """Return the arguments of a launch; what is taken for the sub-command of a tool is the first of its own."""
    first = len(launch.command.words) - len(launch.arguments) - 1
    return launch.arguments if launch.kind != "tool" else launch.command.words[first:]


def read(launch: Launch, kind: str) -> tuple[Document, ...]:
    """Translate a launch; `composition` reads the files that it names with it."""
    source = launch.command.source
    files, others = _take_files(_arguments(launch))
    flags = parse_flags(others)
    options = {prime_rl.PROGRAM: Argument(kind, None), **dict(_name_keys(flags.options))}
    gaps = list(gaps_of_words((*flags.unknown, *(word for word, _ in files if word.text is None))))
    for word, section in files:
        if section is not None and word.text is not None:
            why = f"names {word.text!r} for its section {section}, which is not read"
            gaps.append(Gap(word.source._replace(key=f"--{section}"), why))
    references = tuple((prime_rl.READER, word.text, _AT) for word, section in files if section is None and word.text)
    document = Document(
        prime_rl.READER, source, (), references=references, is_command=True, gaps=tuple(gaps), options=options
    )
    alone = kind == "trainer" and _COUNT.isdisjoint(launch.launchers)
    return (*prime_rl.compose(document), *(_one_rank(launch) if alone else ()))


def _one_rank(launch: Launch) -> Iterator[Document]:
    """Say that the trainer is one rank where nothing starts more: ``rl`` and ``sft`` start it by torchrun."""
    found = ranks.Ranks()
    found.state(ranks.WORLD, "(started alone)", 1, launch.command.source.line)
    document = found.document(launch.command.source)
    if document is not None:
        yield document


def _take_files(words: tuple[Word, ...]) -> tuple[list[tuple[Word, str | None]], list[Word]]:
    """Take the files behind ``@`` out of a command, each with the section that it is for."""
    files: list[tuple[Word, str | None]] = []
    others: list[Word] = []
    at = False
    for word in words:
        if at:
            last = others[-1].text if others else None
            of_section = last is not None and last.startswith("--") and "=" not in last and "." not in last
            files.append((word, last[2:] if of_section and last is not None else None))
            if of_section:
                others.pop()
        elif word.text != _AT:
            others.append(word)
        at = not at and word.text == _AT
    return files, others


def _name_keys(options: dict[str, Argument]) -> Iterator[tuple[str, Argument]]:
    """Name keys as files do: ``--no-trainer.model.compile`` turns a section off."""
    for name, argument in options.items():
        if name.startswith(_NO) and argument.value is True:
            yield name.removeprefix(_NO), argument._replace(value=None if "." in name else False)
        else:
            yield name, argument._replace(value=None) if argument.value == "None" else argument
