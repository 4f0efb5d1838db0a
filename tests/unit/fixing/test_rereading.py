"""Documents as they are once a file is edited."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.core.fix import TextEdit
from compatcheck.fixing.rereading import reread
from compatcheck.frameworks.recognise import follow_references, read_configurations
from compatcheck.resolution.resolve import resolve
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from pathlib import Path

FILE = """\
algorithm: {adv_estimator: grpo}
actor_rollout_ref: {model: {path: Qwen/Qwen2.5-7B}, rollout: {n: 4}}
critic: {ppo_micro_batch_size_per_gpu: 4, model: {path: Qwen/Qwen2.5-1.5B}}
"""


@pytest.mark.parametrize(
    ("words", "old", "new", "critic"),
    [
        ("algorithm.adv_estimator=gae", "size_per_gpu: 4", "size_per_gpu: 2", 2),
        ("data.train_batch_size=8", "adv_estimator: grpo", "adv_estimator: gae", 4),
        ("algorithm.adv_estimator=grpo", "adv_estimator: grpo", "adv_estimator: gae", None),
    ],
)
def test_a_file_that_a_command_composes_from_is_read_with_it_again(
    tmp_path: Path, words: str, old: str, new: str, critic: int | None
) -> None:
    file, script = tmp_path / "mine.yaml", tmp_path / "train.sh"
    file.write_text(FILE, encoding="utf-8")
    script.write_text(f"python3 -m verl.trainer.main_ppo -cp . -cn mine {words}\n", encoding="utf-8")
    (reading,) = read_configurations(str(script), named=True)
    before = follow_references(reading.documents, open_rules(), {})
    path = next(one.source.path for one in before if one.source.path.endswith("mine.yaml"))
    at = FILE.index(old)
    after = reread(before, (TextEdit(path, at, at + len(old), new),))
    assert after is not None
    found = resolve("s", rules=open_rules(), documents=after)
    assert found.roles["actor"]["model.name"].value == "Qwen/Qwen2.5-7B"
    assert ("critic" in found.roles) == (critic is not None)
    if critic is not None:
        assert found.roles["critic"]["training.micro_batch_size"].value == critic


def test_a_value_that_the_program_does_not_take_is_no_edit(tmp_path: Path) -> None:
    file = tmp_path / "axolotl.yml"
    text = "base_model: Qwen/Qwen2.5-7B\nmicro_batch_size: 1\nsequence_len: 4096\nflash_attention: true\n"
    file.write_text(text, encoding="utf-8")
    (reading,) = read_configurations(str(file), named=True)
    at = text.index("true")
    assert reread(reading.documents, (TextEdit(str(file), at, at + 4, "sdpa"),)) is None
    assert reread(reading.documents, (TextEdit(str(file), at, at + 4, "false"),)) is not None
