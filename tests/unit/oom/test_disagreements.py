"""A log and inputs of two different runs: what the log says otherwise is said, and nothing where they agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from compatcheck.checking.out_of_memory import explain_oom
from compatcheck.checking.request import Request
from compatcheck.reporters.out_of_memory import describe_report, format_markdown, format_text
from compatcheck.rules.locate import open_rules

if TYPE_CHECKING:
    from pathlib import Path

RULES = open_rules(())
LOG = """***** Running training *****
  Instantaneous batch size per device = 4
[rank5]: Traceback (most recent call last):
[rank5]:   File "/env/transformers/models/qwen2/modeling_qwen2.py", line 8, in forward
[rank5]:     logits = logits.float()
[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB. GPU 5 has a total capacity of 79.10 GiB of which \
1.10 GiB is free. Including non-PyTorch memory, this process has 77.99 GiB memory in use.
"""
REPORTED = "- `transformers` version: 4.47.0\n- PyTorch version (GPU?): 2.5.1 (True)\n- Python version: 3.11.9\n\n"


@pytest.mark.parametrize(
    ("model", "batch", "gpu", "said"),
    [
        ("Qwen/Qwen2.5-7B", 4, "8xH100-80GB", ()),
        ("meta-llama/Meta-Llama-3-8B", 4, "8xH100-80GB", ("model.model_type",)),
        ("Qwen/Qwen2.5-7B", 1, "8xH100-80GB", ("training.micro_batch_size",)),
        ("Qwen/Qwen2.5-7B", 4, "4xH100-80GB", ("hardware.world_size",)),
        ("Qwen/Qwen2.5-7B", 4, "8xA100-40GB", ("hardware.memory_bytes",)),
    ],
)
def test_what_the_inputs_say_otherwise_is_named_with_its_place(tmp_path: Path, model, batch, gpu, said) -> None:
    script = tmp_path / "train.sh"
    ranks = f"--nproc_per_node {gpu[0]}"
    script.write_text(
        f"torchrun {ranks} train.py --model_name_or_path {model} --per_device_train_batch_size {batch} --bf16\n"
    )
    report = explain_oom(LOG, "train.log", Request(paths=(str(script),), gpu=gpu), RULES, {})
    assert tuple(one.name for one in report.disagreements) == said
    assert [one["name"] for one in describe_report(report)["disagreements"]] == list(said)
    for formatted in (" ".join(format_text(report).split()), format_markdown(report)):
        assert ("are they of the run that wrote the log?" in formatted) is bool(said)
        assert all(f"{name}: the log tells of " in formatted for name in said)


def test_releases_of_a_report_in_the_log_are_compared_and_a_mention_is_not(tmp_path: Path) -> None:
    listed = tmp_path / "requirements.txt"
    listed.write_text("transformers==4.49.0\ntorch==2.5.1\n")
    report = explain_oom(REPORTED + LOG, "train.log", Request(paths=(str(listed),)), RULES, {})
    assert [(one.name, one.logged, one.stated) for one in report.disagreements] == [
        ("transformers", "4.47.0", "4.49.0")
    ]
    mentioned = explain_oom(
        f"It worked with transformers 4.46.3.\n{LOG}", "log", Request(paths=(str(listed),)), RULES, {}
    )
    assert mentioned.disagreements == ()


def test_a_log_does_not_disagree_with_itself() -> None:
    text = f"{LOG}\n```bash\ntorchrun train.py --model_name_or_path meta-llama/Meta-Llama-3-8B --per_device_train_batch_size 1\n```\n"
    assert explain_oom(text, "<stdin>", Request(), RULES, {}).disagreements == ()
