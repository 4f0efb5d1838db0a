"""The statements of a script, by tree-sitter's bash grammar over the outline, and what it could not read."""

from __future__ import annotations

from bisect import bisect_right
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from compatcheck.shell.lexical import Heredoc, Outline, UnclosedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tree_sitter import Node, Parser


_MISPLACED = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}"})


_SEPARATORS = frozenset({";", "&", "\n", "&&", "||", "|"})


class Problem(NamedTuple):
    """A part of a script that is not bash as the grammar knows it."""

    line: int
    reason: str


class Unit:
    """A text of statements: a script, or the inside of ``$( … )``, with its syntax tree."""

    def __init__(self, text: str, line: int = 1, depth: int = 0) -> None:
        """Parse a text whose first line is ``line`` of the script, ``depth`` expansions deep."""
        self.text = text
        self.depth = depth
        self._first_line = line
        self._ends = [i for i, char in enumerate(text) if char == "\n"]
        self.problems: list[Problem] = []
        """What could not be read, in the order of the lines."""
        self.cut = False
        """Whether the last statement is not whole, because something in it is not closed."""
        self.doubtful = len(text)
        """Offset from which on bash would have stopped reading."""
        outline = self._outline()
        for offset, reason in outline.errors:
            self.problems.append(Problem(self.line(offset), reason))
            self.doubtful = min(self.doubtful, offset)
        self.heredocs: Mapping[int, Heredoc] = outline.heredocs
        """Here-documents by the offset of their ``<<``."""
        self._outlined = "".join(outline.mask)
        self.root: Node = _parser().parse(self._outlined.encode("ascii", "replace")).root_node
        self.problems.extend(self._errors(self.root))

    def _outline(self) -> Outline:
        """Outline the text; where something is not closed, what comes before it, as bash runs that first."""
        text = self.text
        while True:
            outline = Outline(text, self.depth)
            try:
                outline.run()
            except UnclosedError as error:
                if not self.cut:
                    reason = f"{error.what} is not closed; the rest is not read"
                    self.problems.append(Problem(self.line(error.offset), reason))
                self.cut = True
                text = text[: error.offset]
            else:
                return outline

    def _errors(self, node: Node) -> Iterator[Problem]:
        """Find what the grammar could not read; nothing is looked for inside of it."""
        if node.is_missing:
            yield Problem(self.line(node.start_byte), f"{node.type!r} is missing")
        elif node.type == "ERROR":
            tokens = (child for child in node.children if not child.is_named and child.type not in _SEPARATORS)
            start = next((child.start_byte for child in tokens), node.start_byte)
            self.doubtful = min(self.doubtful, start)
            written = self.text[start : node.end_byte].strip().partition("\n")[0]
            yield Problem(self.line(start), f"is not understood: {written[:60]}")
        elif node.type == "command" and "\n" in self._outlined[node.start_byte : node.end_byte]:
            self.doubtful = min(self.doubtful, node.start_byte)
            yield Problem(self.line(node.start_byte), "is read together with the lines after it")
        elif node.type == "command":
            word = self._outlined[node.start_byte : node.end_byte].partition(" ")[0]
            if word in _MISPLACED:
                self.doubtful = min(self.doubtful, node.start_byte)
                yield Problem(self.line(node.start_byte), f"{word} ends nothing")
        else:
            for child in node.named_children if not node.has_error else node.children:
                yield from self._errors(child)

    def line(self, offset: int) -> int:
        """Return the script's line of an offset."""
        return self._first_line + bisect_right(self._ends, offset - 1)

    def written(self, node: Node) -> str:
        """Return a statement as the script spells it."""
        return self.text[node.start_byte : node.end_byte]


@lru_cache(maxsize=1)
def _parser() -> Parser:
    import tree_sitter_bash  # noqa: PLC0415 (only for launch scripts)
    from tree_sitter import Language, Parser  # noqa: PLC0415

    return Parser(Language(tree_sitter_bash.language()))
