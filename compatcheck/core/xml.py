"""XML read by expat without anything that expands: no document type, no entities, bounded depth and size.

A bomb of entities needs a document type to declare them in, so that refusing one is enough:
https://docs.python.org/3/library/pyexpat.html, https://en.wikipedia.org/wiki/Billion_laughs_attack
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn

from compatcheck.core.errors import InputError
from compatcheck.core.source import Source
from compatcheck.core.textfile import read_bytes

MAX_BYTES = 32 << 20
MAX_DEPTH = 64
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


def read_xml(path: str) -> XmlFile:
    """Read and parse an XML file.

    Raises:
        InputError: it cannot be read, is not well formed, has a document type, or is too large or too deep.
    """
    return parse_xml(read_bytes(path, limit=MAX_BYTES), path)


def parse_xml(data: bytes, path: str) -> XmlFile:
    """Parse XML.

    Raises:
        InputError: see `read_xml`.
    """
    from xml.parsers import expat  # noqa: PLC0415 (only for XML)

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    root: list[Element] = []
    stack: list[Element] = []
    texts: list[list[str]] = []
    namespaces: list[str] = []
    count = 0

    def refuse(message: str) -> NoReturn:
        hint = "check that this is the file you mean"
        raise InputError(message, source=Source(path, line=parser.CurrentLineNumber), hint=hint)

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if len(stack) >= MAX_DEPTH:
            refuse(f"is nested more than {MAX_DEPTH} levels deep")
        if count > MAX_ELEMENTS:
            refuse(f"holds more than {MAX_ELEMENTS} elements")
        space, _, local = name.rpartition(" ")
        plain = {key.rpartition(" ")[2]: value for key, value in attributes.items()}
        element = Element(local, plain, parser.CurrentLineNumber)
        if stack:
            stack[-1].children.append(element)
        else:
            root.append(element)
            namespaces.append(space)
        stack.append(element)
        texts.append([])

    def end(_: str) -> None:
        stack.pop().text = "".join(texts.pop()).strip()

    def characters(text: str) -> None:
        if texts and not stack[-1].children:
            texts[-1].append(text)

    def refuse_document_type(*_: object) -> None:
        refuse("declares a document type, whose entities are not expanded")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = characters
    parser.StartDoctypeDeclHandler = refuse_document_type
    parser.EntityDeclHandler = refuse_document_type
    try:
        parser.Parse(data, True)  # noqa: FBT003 (positional in pyexpat)
    except expat.ExpatError as error:
        message = f"is not valid XML: {expat.ErrorString(error.code)} at column {error.offset + 1}"
        raise InputError(message, source=Source(path, line=error.lineno), hint="is the file complete?") from None
    except (LookupError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        message = "is in an encoding that cannot be read"
        raise InputError(message, source=Source(path, line=1), hint="save the file as UTF-8") from None
    return XmlFile(path, root[0], namespaces[0])
