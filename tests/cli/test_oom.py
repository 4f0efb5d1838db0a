"""`compatcheck oom`: from a log to the tensor, its phase, its cause and the rules that may explain it."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import ROOT
from tests.cli.run_cli import run

PAGE = ROOT / "docs/oom.md"
MESSAGE = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total capacity of 79.10 GiB of which "
    "3.02 GiB is free. Including non-PyTorch memory, this process has 76.08 GiB memory in use. Of the allocated memory "
    "74.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but unallocated."
)
LOGITS = """Traceback (most recent call last):
  File "/env/site-packages/transformers/models/qwen2/modeling_qwen2.py", line 1213, in forward
    logits = logits.float()
"""


@pytest.fixture
def log(tmp_path: Path):
    def write(text: str, name: str = "log.txt") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def answer(*arguments: object) -> dict:
    ran = run("oom", *arguments, "--format", "json")
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def test_the_example_of_the_issue(log) -> None:
    ran = run(
        "oom", log(LOGITS + MESSAGE.format(asked="9.28 GiB")), "--model", "qwen2.5-7b", "--set", "training.micro_batch_size=1",
        "--set", "training.sequence_length=16384",
    )  # fmt: skip
    assert ran.code == 0
    assert "fp32 logits [1, 16384, 152064] = [micro_batch_size, sequence_length, vocab_size]" in " ".join(
        ran.out.split()
    )
    assert "forward, loss" in ran.out
    assert "candidates tried" in ran.out


def test_the_model_is_read_from_the_log_itself(log) -> None:
    path = log("loading Qwen/Qwen2.5-7B-Instruct\n" + LOGITS + MESSAGE.format(asked="9.28 GiB"))
    report = answer(path)
    assert report["model"] == "well-known model qwen2.5-7b-instruct, named in the log"
    assert report["messages"][0]["tensors"][0]["name"] == "fp32 logits"
    assert answer(path, "--model", "gpt2-xl")["model"] == "well-known model gpt2-xl"


def test_a_model_that_is_not_known_is_said(log) -> None:
    report = answer(log("loading Qwen/Qwen3-Omni-30B\n" + MESSAGE.format(asked="9.28 GiB")))
    assert (report["model"], report["unknown_models"]) == (None, ["Qwen/Qwen3-Omni-30B"])
    assert report["messages"][0]["outcome"] == "not_derivable"
    assert report["messages"][0]["needs"] == ["--model"]


def test_the_devices_are_asked_for_where_neither_they_nor_their_number_are_known(tmp_path) -> None:
    (tmp_path / "m.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 23.19 GiB.\n")
    (tmp_path / "t.yaml").write_text(
        "model_name_or_path: Qwen/Qwen2.5-7B\nbf16: true\nper_device_train_batch_size: 4\nmax_length: 8192\noutput_dir: o\n"
    )
    asked = (f"{tmp_path}/m.log", f"{tmp_path}/t.yaml")
    assert "would help  --gpu, --set training.tensor_parallel=…" in run("oom", *asked).out
    assert "--gpu" not in run("oom", *asked, "--gpu", "8xH100-80GB").out
    assert "would help  --set hardware.world_size=…, " in run("oom", *asked, "--set", "hardware.memory_bytes=80GiB").out


def test_settings_of_the_log_stand_in_and_options_win(log) -> None:
    text = "Qwen/Qwen2.5-7B --per_device_train_batch_size 1 --model_max_length 16384\n" + MESSAGE.format(
        asked="9.28 GiB"
    )
    (message,) = answer(log(text))["messages"]
    assert message["tensors"][0]["shape"] == [1, 16384, 152064]
    (message,) = answer(log(text), "--set", "training.sequence_length=1000")["messages"]
    assert message["outcome"] == "not_derivable"


def test_rules_whose_cost_prints_as_the_size_come_first(log) -> None:
    text = "deepspeed==0.16.4\ntorch==2.5.1\nmeta-llama/Meta-Llama-3-70B\n" + MESSAGE.format(asked="127.50 GiB")
    settings = [
        "training.framework=deepspeed",
        "training.zero_stage=3",
        "training.gradient_checkpointing=true",
        "training.use_reentrant=false",
        "training.param_dtype=bfloat16",
    ]
    report = answer(log(text), *(word for setting in settings for word in ("--set", setting)))
    first, *others = report["findings"]
    assert (first["rule_id"], first["relation"]) == ("deepspeed/zero3-params-kept-in-backward", "size")
    assert first["expected_bytes"] == 136904704000
    assert all(other["relation"] != "size" for other in others)
    assert report["messages"][0]["cause"]["name"] == "larger_than_device"


def test_paths_are_read_as_check_reads_them(log) -> None:
    report = answer(log(MESSAGE.format(asked="1.60 GiB")), ROOT / "fixtures/cases/openrlhf-llama3-70b")
    assert report["model"].endswith("fixtures/cases/openrlhf-llama3-70b/config.json")
    assert {finding["rule_id"] for finding in report["findings"]} >= {"deepspeed/zero3-params-kept-in-backward"}


class _Input(NamedTuple):
    buffer: io.BytesIO
    closed: bool = False


def test_standard_input_is_read(monkeypatch) -> None:
    monkeypatch.setattr(sys, "stdin", _Input(io.BytesIO(MESSAGE.format(asked="9.28 GiB").encode())))
    report = answer("-")
    assert (report["log"], report["summary"]["messages"]) == ("<stdin>", 1)


def test_exit_codes(log, tmp_path) -> None:
    assert run("oom", log("all is well\n")).code == 3
    assert "no message" in run("oom", log("all is well\n")).err
    unknown = run("oom", log("epoch 3\nEngineError: out of device memory in kernel 7\n"))
    assert (unknown.code, "no message" in unknown.err) == (3, False)
    assert ":2: speaks of memory in a form that is not known here: EngineError" in unknown.err
    assert run("oom", tmp_path / "missing.txt").code == 4
    assert run("oom", tmp_path).code == 4
    assert run("oom", log(MESSAGE.format(asked="9.28 GiB")), "--model", "no/such-model").code == 4
    assert run("oom", log(MESSAGE.format(asked="9.28 GiB")), "--set", "nonsense=1").code == 2
    assert run("oom").code == 2


@pytest.mark.parametrize(
    "data", [b"", b"\x00" * 4096, b"\xff\xfe" + "nothing".encode("utf-16-le"), bytes(range(256)) * 9]
)
def test_files_that_hold_no_log(tmp_path, data) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    ran = run("oom", path)
    assert ran.code in {3, 4}
    assert "Traceback" not in ran.err


def test_logs_in_other_encodings_are_read(tmp_path) -> None:
    path = tmp_path / "log"
    path.write_bytes(MESSAGE.format(asked="9.28 GiB").encode("utf-16"))
    assert answer(path)["messages"][0]["sizes"]["asked"]["text"] == "9.28 GiB"
    path.write_bytes(b"caf\xe9 " + MESSAGE.replace("GPU 0", "GPU \x00").format(asked="9.28 GiB").encode())
    assert answer(path)["messages"][0]["sizes"]["asked"]["text"] == "9.28 GiB"


def test_a_log_that_stands_behind_another_file_is_named(log) -> None:
    listed, died = log("torch==2.6.0\n", "req.txt"), log(MESSAGE.format(asked="448.00 MiB"), "a log.txt")
    assert f"hint: {died} holds one, and is the log: compatcheck oom '{died}' {listed}" in run("oom", listed, died).err


def test_several_messages_have_one_that_explains(log) -> None:
    look_alike = "out of resource: shared memory, Required: 163856, Hardware limit: 101376"
    text = "\n".join([look_alike, LOGITS + MESSAGE.format(asked="9.28 GiB"), "exits with return code = -9"])
    report = answer(log(text), "--model", "qwen2.5-7b")
    assert [message["memory"] for message in report["messages"]] == ["none", "device", "host"]
    assert report["primary"] == 1
    ran = run("oom", log(text), "--model", "qwen2.5-7b")
    assert " ".join(ran.out.split()).count("<- explains the failure") == 1


def test_the_line_that_names_a_message_is_wrapped(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "log").write_text(
        "RuntimeError: CUDA out of memory. Tried to allocate 148.00 MiB (GPU 0; 10.92 GiB total capacity; "
        "9.80 GiB already allocated; 30.50 MiB free; 10.26 GiB reserved in total by PyTorch)"
    )
    assert max(map(len, run("oom", "log").out.splitlines())) <= 80


def test_markdown_is_a_table(log) -> None:
    ran = run("oom", log(LOGITS + MESSAGE.format(asked="9.28 GiB")), "--model", "qwen2.5-7b", "--format", "markdown")
    rows = [line for line in ran.out.splitlines() if line.startswith("|")]
    assert len(rows) == 3
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {6}


def test_the_page_documents_every_key_of_the_json(log) -> None:
    report = answer(log(LOGITS + MESSAGE.format(asked="9.28 GiB")), "--model", "qwen2.5-7b")
    documented = set(re.findall(r"`([a-z_]+)`", PAGE.read_text(encoding="utf-8").partition("## JSON")[2]))

    def keys(value: object):
        if isinstance(value, dict):
            for key, inner in value.items():
                yield key
                yield from keys(inner)
        elif isinstance(value, list):
            for inner in value:
                yield from keys(inner)

    assert set(keys(report)) <= documented


def test_the_page_names_every_form_and_every_case() -> None:
    from compatcheck.oom.forms import FORMS

    text = PAGE.read_text(encoding="utf-8")
    assert [form.name for form in FORMS if f"`{form.name}`" not in text] == []
    urls = re.findall(r"url: (\S+)", (ROOT / "fixtures/oom/cases.yaml").read_text(encoding="utf-8"))
    assert [url for url in urls if f"({url})" not in text] == []


def test_a_log_on_standard_input_needs_no_dash(monkeypatch) -> None:
    text = MESSAGE.format(asked="9.28 GiB")
    given = io.TextIOWrapper(io.BytesIO(text.encode()))
    monkeypatch.setattr(sys, "stdin", given)
    monkeypatch.setattr("compatcheck.cli.oom.is_given", lambda: True)
    ran = run("oom", "--model", "qwen2.5-7b")
    assert (ran.code, ran.out.startswith("<stdin>:1")) == (0, True)
    monkeypatch.setattr("compatcheck.cli.oom.is_given", lambda: False)
    ran = run("oom", "--model", "qwen2.5-7b")
    assert (ran.code, "Missing argument 'LOG'" in ran.err) == (2, True)
