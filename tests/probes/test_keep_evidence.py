"""Evidence is kept over a change that its run does not reach, and no other."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compatcheck.lab.measurement import Measurement
from compatcheck.lab.probes.probe import find_probe
from tests.probes.keep_evidence import is_same, keep

if TYPE_CHECKING:
    from compatcheck.lab.probes.probe import Probe

CATALOG = Path(find_probe("whole_run").path).parent
DEEPSPEED, FSDP1 = {"trainer": "zero3"}, {"trainer": "fsdp1", "world_size": 2}


def change(folder: Path, name: str, file: str, old: str, new: str) -> Probe:
    """Return a probe of the catalogue in a folder of its own, with one text in one file changed."""
    for path in CATALOG.glob("*.py"):
        shutil.copy(path, folder)
    text = (CATALOG / file).read_text(encoding="utf-8")
    assert old in text
    (folder / file).write_text(text.replace(old, new), encoding="utf-8")
    return find_probe(str(folder / f"{name}.py"))


@pytest.mark.parametrize(
    ("name", "file", "edit", "kept", "lost"),
    [
        ("whole_run", "_fsdp.py", ("orig_params=True", "orig_params=False"), DEEPSPEED, FSDP1),
        ("whole_run", "whole_run.py", ('"reduce_bucket_size": 1 << 17', '"reduce_bucket_size": 1'), FSDP1, DEEPSPEED),
        ("whole_run", "whole_run.py", ('phase("load")', 'phase("loading")'), None, DEEPSPEED),
        ("whole_run", "whole_run.py", ('"growth_bytes_per_step": 0', '"growth_bytes_per_step": 1'), DEEPSPEED, None),
        ("whole_run", "_tiny_models.py", ("save_pretrained(folder)", "save_pretrained(folder + '')"), None, DEEPSPEED),
        ("whole_run", "_tiny_models.py", ("position_buckets", "position_bucket"), None, DEEPSPEED),
        ("masks", "_tiny_models.py", ('    "gptj": {**_GPT2, "rotary_dim": 8},', ""), {}, {"model_type": "gptj"}),
        ("masks", "_tiny_models.py", ('    "gpt2": _GPT2,', '    "gpt2": {},'), None, {}),
        ("whole_run", "_tiny_models.py", ("return 2 * length", "return 3 * length"), DEEPSPEED, None),
        ("configured_run", "_fsdp.py", ("orig_params=True", "orig_params=False"), {}, None),
        ("configured_run", "whole_run.py", ('"report_to": "none"', '"report_to": []'), None, {}),
    ],
)
def test_what_a_run_reaches_decides(
    tmp_path: Path,
    name: str,
    file: str,
    edit: tuple[str, str],
    kept: dict[str, object] | None,
    lost: dict[str, object] | None,
) -> None:
    before, after = find_probe(name), change(tmp_path, name, file, *edit)
    assert kept is None or is_same(before, after, before.complete(kept))
    assert lost is None or not is_same(before, after, before.complete(lost))


def test_only_what_was_measured_with_the_earlier_code_gets_today_s_hash(tmp_path: Path) -> None:
    before = find_probe("whole_run")
    after = change(tmp_path, "whole_run", "whole_run.py", '"stage": int(stage)', '"stage": 1 * int(stage)')
    one = Measurement(
        probe="whole_run",
        probe_hash=before.hash_for({}),
        backend="cpu",
        accounting="allocator",
        parameters=before.complete({}),
        versions={},
        device="a CPU",
        status="ok",
    )
    assert keep(one, before, after).probe_hash == after.hash_for({}) != before.hash_for({})
    other = Measurement(**{name: getattr(one, name) for name in Measurement.__slots__} | {"probe_hash": "0"})
    assert keep(other, before, after) is other
    zero = Measurement(
        **{name: getattr(one, name) for name in Measurement.__slots__}
        | {"probe_hash": before.hash_for(DEEPSPEED), "parameters": before.complete(DEEPSPEED)}
    )
    assert keep(zero, before, after) is zero


def test_a_run_is_measured_as_the_files_that_it_gets(tmp_path: Path) -> None:
    before = find_probe("whole_run")
    after = change(tmp_path, "whole_run", "_fsdp.py", "use_orig_params=True", "use_orig_params=False")
    assert after.hash_for(DEEPSPEED) == before.hash_for(DEEPSPEED)
    assert after.hash_for(FSDP1) != before.hash_for(FSDP1)
