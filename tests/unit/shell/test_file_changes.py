"""Files that a program changes where they lie."""

from __future__ import annotations

import pytest

from compatcheck.shell.file_changes import changed_files


@pytest.mark.parametrize(
    ("command", "changed"),
    [
        ("sed -i s/2/3/ a.json", {"s/2/3/", "a.json"}),
        ("sed -Ei.bak s/2/3/ a.json", {"s/2/3/", "a.json"}),
        ("perl -pi -e s/2/3/ a.json", {"s/2/3/", "a.json"}),
        ("/usr/bin/yq --inplace .a=1 a.yaml", {".a=1", "a.yaml"}),
        ("sed -n s/i/3/ a.json", set()),
        ("sed --quiet -e s/i/3/ a.json", set()),
        ("cp b.json a.json", {"a.json", "a.json/b.json"}),
        ("cp -r x/b.json c.json out", {"out", "out/b.json", "out/c.json"}),
        ("mv b.json a.json", {"a.json", "a.json/b.json", "b.json"}),
        ("ln -sf b.json a.json", {"a.json", "a.json/b.json"}),
        ("grep -i x a.json", set()),
        ("cp", set()),
    ],
)
def test_what_a_program_changes_by_its_arguments(command: str, changed: set[str]) -> None:
    name, *arguments = command.split()
    assert set(changed_files(name, arguments, None)) == changed


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("json.dump(d, open('a.json', 'w'))", ["a.json"]),
        ('with open("a.json", "a") as f: pass', ["a.json"]),
        ("Path('a.json').write_text(x)", ["a.json"]),
        ("json.load(open('a.json'))", []),
        ("open('a.json', 'rb')", []),
    ],
)
def test_what_python_in_a_script_writes(text: str, changed: list[str]) -> None:
    assert list(changed_files("python3", ["-c", text], None)) == changed
    assert list(changed_files("python3", ["-"], text)) == changed
