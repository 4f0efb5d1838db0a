"""XML is read without document types and entities, and within bounds."""

from __future__ import annotations

import time

import pytest

from compatcheck.core.errors import InputError
from compatcheck.core.textfile import MAX_DEPTH
from compatcheck.core.xml import parse_xml


def test_elements_have_text_children_and_lines() -> None:
    file = parse_xml(
        b'<?xml version="1.0"?>\n<b:bom xmlns:b="http://x/y" b:a="1">\n <b:c> t </b:c>\n <d/></b:bom>', "f"
    )
    assert (file.namespace, file.root.name, file.root.attributes) == ("http://x/y", "bom", {"a": "1"})
    assert file.root.value("c") == "t"
    assert file.root.value("d") is None
    assert [(item.name, item.line) for item in file.root.children] == [("c", 3), ("d", 4)]


BOMB = b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">' + b"".join(
    b'<!ENTITY a%d "%s">' % (n, b"&a%d;" % (n - 1) * 10 if n > 1 else b"&a;" * 10) for n in range(1, 20)
)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (BOMB + b"]><x>&a19;</x>", "document type"),
        (b'<!DOCTYPE x SYSTEM "file:///etc/passwd"><x/>', "document type"),
        (b"<x>&undefined;</x>", "not valid XML"),
        (b"<x><y></x>", "not valid XML"),
        (b"", "not valid XML"),
        (b'<?xml version="1.0" encoding="nonsense"?><x/>', "encoding|not valid"),
        (b"<x>" * (MAX_DEPTH + 2), "levels deep"),
        (b"<x>" + b"<y/>" * 1_100_000 + b"</x>", "elements"),
    ],
)
def test_what_is_refused_is_refused_at_once(data: bytes, reason: str) -> None:
    before = time.process_time()
    with pytest.raises(InputError, match=reason) as error:
        parse_xml(data, "f.xml")
    assert error.value.hint
    assert time.process_time() - before < 10
