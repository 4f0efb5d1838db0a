"""XML read by expat without anything that expands: no document type, no entities, bounded depth and size.

A bomb of entities needs a document type to declare them in, so that refusing one is enough:
https://docs.python.org/3/library/pyexpat.html, https://en.wikipedia.org/wiki/Billion_laughs_attack
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NoReturn

from compatcheck.core.errors import InputError
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.source import Source
from compatcheck.core.textfile import MAX_DEPTH, read_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_BYTES = 32 << 20
MAX_ELEMENTS = 1_000_000


class Element:
    """One element; names are without their namespace."""

    __slots__ = ("attributes", "children", "line", "name", "text")

    def __init__(self, name: str, attributes: dict[str, str], line: int) -> None:
        """Start an empty element on a line, 1 for the first."""
        self.name = name
        self.attributes = attributes
        self.children: list[Element] = []
        self.text = ""
        """What stands in it before its first child, without the blanks around."""
        self.line = line

    def child(self, name: str) -> Element | None:
        """Return the first child of a name."""
        return next((item for item in self.children if item.name == name), None)

    def value(self, name: str) -> str | None:
        """Return the text of the first child of a name; None where there is none or it is empty."""
        found = self.child(name)
        return (found.text or None) if found is not None else None


class XmlFile(NamedTuple):
    """A parsed file."""

    path: str
    root: Element
    namespace: str
    """Namespace of the root element, ``""`` without one."""


def read_xml(path: str, files: Files = LOCAL) -> XmlFile:
    """Read and parse an XML file.

    Raises:
        InputError: it cannot be read, is not well formed, has a document type, or is too large or too deep.
    """
    return parse_xml(read_bytes(path, files, limit=MAX_BYTES), path)


def parse_xml(data: bytes, path: str) -> XmlFile:
    """Parse XML.

    Raises:
        InputError: see `read_xml`.
    """
    from xml.parsers import expat  # noqa: PLC0415 (only for XML)

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    building = _Building(path, lambda: parser.CurrentLineNumber)
    parser.StartElementHandler = building.start
    parser.EndElementHandler = building.end
    parser.CharacterDataHandler = building.add_text
    parser.StartDoctypeDeclHandler = building.refuse_document_type
    parser.EntityDeclHandler = building.refuse_document_type
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        message = f"is not valid XML: {expat.ErrorString(error.code)} at column {error.offset + 1}"
        raise InputError(message, source=Source(path, line=error.lineno), hint="is the file complete?") from None
    except (LookupError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        message = "is in an encoding that cannot be read"
        raise InputError(message, source=Source(path, line=1), hint="save the file as UTF-8") from None
    return XmlFile(path, building.root[0], building.namespace)


class _Building:
    """The tree while it is built."""

    def __init__(self, path: str, line: Callable[[], int]) -> None:
        self.path = path
        self.line = line
        self.root: list[Element] = []
        self.namespace = ""
        self._stack: list[Element] = []
        self._texts: list[list[str]] = []
        self._count = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if len(self._stack) >= MAX_DEPTH:
            self._refuse(f"is nested more than {MAX_DEPTH} levels deep")
        if self._count > MAX_ELEMENTS:
            self._refuse(f"holds more than {MAX_ELEMENTS} elements")
        space, _, local = name.rpartition(" ")
        plain = {key.rpartition(" ")[2]: value for key, value in attributes.items()}
        element = Element(local, plain, self.line())
        if self._stack:
            self._stack[-1].children.append(element)
        else:
            self.root.append(element)
            self.namespace = space
        self._stack.append(element)
        self._texts.append([])

    def end(self, _: str) -> None:
        self._stack.pop().text = "".join(self._texts.pop()).strip()

    def add_text(self, text: str) -> None:
        if self._texts and not self._stack[-1].children:
            self._texts[-1].append(text)

    def refuse_document_type(self, *_: object) -> None:
        self._refuse("declares a document type, whose entities are not expanded")

    def _refuse(self, message: str) -> NoReturn:
        hint = "check that this is the file you mean"
        raise InputError(message, source=Source(self.path, line=self.line()), hint=hint)
