"""A program that runs from a checkout is not installed, and not old either: its release is unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.checking import Request, check
from compatcheck.core.environment import Environment, Package
from compatcheck.core.source import Source
from compatcheck.frameworks.recognise import read_configurations
from compatcheck.resolution.resolve import resolve
from compatcheck.resolution.scope import FactScope
from compatcheck.rules.locate import open_rules

COMMAND = """python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.max_prompt_length=512 \\
  data.max_response_length=1024 actor_rollout_ref.model.path=Qwen/Qwen2.5-7B-Instruct \\
  actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=8 actor_rollout_ref.rollout.name=vllm trainer.n_gpus_per_node=8
"""


def environment(**versions: str) -> Environment:
    place = Source("venv")
    return Environment(
        "venv", {name: Package(name, version, place) for name, version in versions.items()}, complete=True
    )


def test_keys_of_a_checkout_are_read(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(COMMAND, encoding="utf-8")
    (reading,) = read_configurations(str(script), named=True)
    rules = open_rules(())
    subject = resolve(
        "it", rules=rules, environment=environment(torch="2.6.0", transformers="4.51.3"), documents=reading.documents
    )
    assert subject.skipped == ()
    assert subject.roles["actor"]["training.micro_batch_size"].value == 8
    assert subject.environment is not None
    assert subject.environment.unlisted == ("verl",)
    scope = FactScope(subject.roles["actor"], subject.environment, rules)
    assert scope.in_range("verl", "absent") == "unknown"
    assert scope.in_range("trl", "absent") == "yes"


@pytest.mark.parametrize("stated", ["setting", "facts file"])
def test_a_program_that_is_only_named_counts_too(tmp_path: Path, stated: str) -> None:
    rules = open_rules(())
    file = tmp_path / "facts.yaml"
    file.write_text("compatcheck: 1\ntraining: {framework: verl}\n", encoding="utf-8")
    documents = read_configurations(str(file), named=True)[0].documents if stated == "facts file" else ()
    settings = {"training.framework": ("verl", Source("--set"))} if stated == "setting" else {}
    subject = resolve(
        "it",
        rules=rules,
        environment=environment(torch="2.6.0"),
        documents=documents,
        settings=settings,  # type: ignore[arg-type]  # a text is a value
    )
    assert subject.environment is not None
    assert set(subject.environment.unlisted) == {"verl", "transformers"}


def test_the_report_says_that_its_release_is_not_known(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(COMMAND, encoding="utf-8")
    site = tmp_path / "venv/lib/python3.11/site-packages"
    for name in ("torch-2.6.0", "transformers-4.51.3"):
        (site / f"{name}.dist-info").mkdir(parents=True)
        version = "Metadata-Version: 2.1\nName: {}\nVersion: {}\n".format(*name.split("-"))
        (site / f"{name}.dist-info/METADATA").write_text(version, encoding="utf-8")
    (tmp_path / "venv/pyvenv.cfg").write_text("version = 3.11.7\nhome = /usr/bin\n", encoding="utf-8")
    request = Request(prefix=str(tmp_path / "venv"), training=(str(script),))
    report = check(request, open_rules(()), {})
    assert "verl" in dict(report.subjects[0].folded)
    assert not [entry for entry in report.skipped if "unknown to verl" in entry.reason]
