"""A waived regression takes its memory all the same: the numbers have it, and the waiver covers that the run does not fit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.cli.run_cli import run

if TYPE_CHECKING:
    from pathlib import Path

RULE = "deepspeed/zero3-params-kept-in-backward"
WAIVER = f'[[waivers]]\nrule = "{RULE}"\nreason = "known"\nexpires = 2999-01-31\n'
TRAIN = """\
model_name_or_path: Qwen/Qwen2.5-32B-Instruct
bf16: true
per_device_train_batch_size: 1
gradient_checkpointing: true
gradient_checkpointing_kwargs: {use_reentrant: false}
max_length: 2048
deepspeed: ds.json
output_dir: out
"""


def _write(folder: Path, waivers: str) -> Path:
    (folder / "train.yaml").write_text(TRAIN, encoding="utf-8")
    (folder / "ds.json").write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}', encoding="utf-8")
    pins = "deepspeed==0.16.4\ntransformers==4.49.0\ntorch==2.6.0\ntrl==0.15.2\naccelerate==1.4.0\n"
    (folder / "requirements.txt").write_text(pins, encoding="utf-8")
    run = '[runs.train]\nlock = "requirements.txt"\ntraining = "train.yaml"\ngpu = "16xA100-80GB"\n'
    policy = folder / "compatcheck.toml"
    policy.write_text(run + waivers, encoding="utf-8")
    return policy


def _check(policy: Path) -> tuple[int, dict]:
    ran = run("check", "--policy", policy, "--format", "json")
    return ran.code, json.loads(ran.out)


def test_the_numbers_of_a_waived_regression_stay(tmp_path: Path) -> None:
    failing, before = _check(_write(tmp_path, ""))
    passing, after = _check(_write(tmp_path, WAIVER))
    assert (failing, passing) == (1, 0)
    estimates = [found["subjects"][0]["estimate"] for found in (before, after)]
    assert estimates[0] == estimates[1]
    assert estimates[0]["verdict"] == "does_not_fit"
    told = {one["rule_id"]: one["suppressed"]["reason"] for one in after["findings"] if one["suppressed"]}
    assert told == {RULE: "known", "_stack/run-does-not-fit": "known"}
    priced = json.loads(run("estimate", tmp_path, "--format", "json").out)
    assert priced["subjects"][0]["estimate"]["needed_bytes"] == estimates[0]["needed_bytes"]


def test_a_run_that_does_not_fit_without_it_fails(tmp_path: Path) -> None:
    policy = _write(tmp_path, WAIVER)
    policy.write_text(policy.read_text("utf-8").replace("16xA100-80GB", "2xA100-80GB"), encoding="utf-8")
    code, found = _check(policy)
    assert code == 1
    assert [
        one["rule_id"]
        for one in found["findings"]
        if one["rule_id"] == "_stack/run-does-not-fit" and not one["suppressed"]
    ]
