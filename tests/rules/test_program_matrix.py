"""Every rule under every program: as stored, and as the programs' own code has it."""

from __future__ import annotations

from tests.rules.program_matrix import compute, derive_cells, read_matrix, read_programs


def test_the_matrix_is_what_the_rules_say() -> None:
    names = [program.name for program in read_programs()]
    stored, found = read_matrix(), dict(compute())
    assert stored.keys() == found.keys(), "python -m tests.rules.program_matrix"
    differ = [
        f"{rule} under {name}: {old} became {new}"
        for rule, row in found.items()
        for name, old, new in zip(names, stored[rule], row, strict=True)
        if old != new
    ]
    assert differ == [], "python -m tests.rules.program_matrix"


def test_the_matrix_agrees_with_the_code_of_the_programs() -> None:
    columns = {program.name: index for index, program in enumerate(read_programs())}
    stored = read_matrix()
    cells = list(derive_cells())
    assert len(cells) > 1700
    differ = [
        f"{cell.rule} under {cell.program}: {stored[cell.rule][columns[cell.program]]}, its code says {cell.allowed}"
        for cell in cells
        if stored[cell.rule][columns[cell.program]] not in cell.allowed
    ]
    assert differ == []
