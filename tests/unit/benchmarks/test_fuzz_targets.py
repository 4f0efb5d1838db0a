"""Every target of the fuzzer exists and has seeds, and what it once crashed on is read or refused."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.fuzz.fuzz import ROOT, TARGETS, find_seeds, write_dictionary
from benchmarks.fuzz.structure import mutate_structure
from compatcheck.core.errors import CompatcheckError
from tests.effort import at_most

if TYPE_CHECKING:
    from collections.abc import Callable

KEPT = sorted(ROOT.glob("fixtures/fuzz/*/*"))


def parser(name: str) -> Callable[[bytes | str], object]:
    module, _, function = TARGETS[name].function.partition(":")
    place = "benchmarks.fuzz.adapters" if module == "adapters" else f"compatcheck.{module}"
    found: Callable[[bytes | str], object] = getattr(import_module(place), function)
    return found


@pytest.mark.parametrize("name", TARGETS)
def test_targets_exist_and_have_seeds(name: str, tmp_path: Path) -> None:
    assert callable(parser(name))
    seeds = find_seeds(name)
    assert seeds
    write_dictionary(seeds, tmp_path / "words")
    assert (tmp_path / "words").read_text().count("\n") > 5


@pytest.mark.parametrize("path", KEPT, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_kept_inputs_do_not_crash(path: Path) -> None:
    try:
        parser(path.parent.name)(path.read_bytes() if TARGETS[path.parent.name].takes_bytes else str(path))
    except CompatcheckError as error:
        assert error.hint


DIGITS = b"9" * 4400
"""More than Python converts."""
FOUND = {
    "requirement, digits of a range": ("requirement", b"trl >=0.9, <0." + DIGITS),
    "requirements, a word of options": ("requirements", b"torch --" + b"-" * 200_000),
    "shell, descriptor": ("shell", b"echo a " + DIGITS + b"> b"),
    "shell, argument": ("shell", b"echo ${" + DIGITS + b"}"),
    "shell, number of a field": ("shell", b"X=$(echo a | cut -d, -f" + DIGITS + b")"),
    "shell, width": ("shell", b"printf '%" + DIGITS + b"s %." + DIGITS + b"s' a b"),
    "shell, a long name that may be assigned": ("shell", b"while ((N > 2)); do N=$((" + b"auto" * 3000 + b")); done"),
    "a launch script, digits that no number ends": (
        "launch_script",
        b"deepspeed pkg/train/train_mem.py --model_name_or_path a/b --lr " + b"4" * 200_000 + b"-bf16\n",
    ),
    "shell, a long list in nested loops": (
        "shell",
        b"for i in {1..2000}; do for j in " + b"a " * 1000 + b"$X; do A=1; done; done",
    ),
    "shell, brackets that nothing closes": ("shell", b"echo " + b"[" * 400_000),
    "Dockerfile, number of a stage": ("dockerfile", b"FROM a\nFROM b\nCOPY --from=" + DIGITS + b" a b\n"),
    "Dockerfile, a digit that is no number": ("dockerfile", "FROM a\nFROM b\nCOPY --from=² a b\n".encode()),
    "launch script, processes": ("launch_script", "torchrun --nproc_per_node=² train.py --bf16 True".encode()),
    "launch script, nodes of a variable": ("launch_script", b"NNODES=" + DIGITS + b" swift sft --model a"),
    "launch script, Hydra": ("launch_script", b"python -m verl.trainer.main_ppo data.train_batch_size=" + DIGITS),
    "conda list, blank lines": ("conda_list", b"# packages in environment at /a:\n" + b"\n" * 150_000 + b"torch 2.5 py"),
    "dpkg, tabs in a value": ("dpkg", b"Package: libnccl2" + b"\t" * 120_000 + b"a\nVersion: 2.21.5\n"),
    "METADATA, tabs in a value": ("metadata", b"Name: a" + b"\t" * 120_000 + b"b\nVersion: 1\n"),
    "requirements, blank lines": ("recognise", b"torch\n" + b"\n" * 120_000),
    "facts, blanks in a device": ("configuration", b"compatcheck: 1\nhardware.gpu: 'a" + b" " * 60_000 + b"b'\n"),
    "shell, blanks behind cd": ("launch_script", b'A="$(cd $B' + b" " * 60_000 + b')"\ntorchrun $A/train.py\n'),
    "Hydra, a default that is no value": ("hydra", b"a=${oc.select:b,{c}}\nd=${add:1,{e}}\nf=${mul:'g,2}"),
    "facts, packages that are one word": ("configuration", b"compatcheck: 1\npackages: ."),
    "facts, a package without a name": ("configuration", b"compatcheck: 1\npackages: {1}"),
    "facts, a package without a release": ("configuration", b"compatcheck: 1\npackages: {torch: [1]}"),
    "training script, depth": ("training_script", b"x = " + b"not " * 990 + b"1"),
    "training script, parts of a module": ("training_script", b"from " + b"a." * 400_000 + b"a import b"),
    "setup.py, depth": ("setup_py", b"setup(install_requires=" + b"not " * 990 + b"[])"),
    "log, device": ("messages", "OutOfMemoryError: Allocation on device ²\n".encode()),
    "log, sizes": (
        "messages",
        b"CUDA out of memory. Tried to allocate " + DIGITS + b".00 MiB. GPU 0 has a total capacity of " + DIGITS + b".00 MiB "
        b"of which 1.00 MiB is free. Process " + DIGITS + b" has 1.00 MiB memory in use.",
    ),
    "log, line and shape of a frame": (
        "messages",
        b'Traceback (most recent call last):\n  File "a.py", line ' + DIGITS + b", in f\n    x = torch.empty(("
        + DIGITS + b", 4), dtype=torch.float32)\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n",
    ),
}  # fmt: skip
"""What a parser once crashed on, took minutes for or refused without a remedy."""


@pytest.mark.parametrize(("name", "data"), FOUND.values(), ids=FOUND)
def test_found_inputs_are_read_or_refused(name: str, data: bytes, tmp_path: Path) -> None:
    file = tmp_path / TARGETS[name].name
    file.write_bytes(data)
    with at_most(100):
        try:
            parser(name)(data if TARGETS[name].takes_bytes else str(file))
        except CompatcheckError as error:
            assert error.hint


@pytest.mark.parametrize("form", ["toml", "json"])
def test_changed_documents_still_parse_mostly(form: str) -> None:
    tomllib = pytest.importorskip("tomllib")
    seed = find_seeds("poetry_lock" if form == "toml" else "pipfile_lock")[0].read_bytes()
    parsed = 0
    for number in range(40):
        changed = mutate_structure(seed, 60_000, number, form=form, mutate=lambda data, limit: data[:limit] + b"]")
        try:
            json.loads(changed) if form == "json" else tomllib.loads(changed.decode())
            parsed += 1
        except ValueError:
            continue
    assert parsed >= 25
