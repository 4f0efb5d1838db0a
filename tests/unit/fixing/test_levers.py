"""What could change: the releases of packages, the nearest first, and whom a finding blames."""

from __future__ import annotations

from pathlib import Path

import pytest

from compatcheck.core.effects import CHANGES_TRAINING, MINOR_RELEASE, OLDER_RELEASE
from compatcheck.core.fix import VERSION
from compatcheck.fixing.files import EditableFiles
from compatcheck.fixing.levers import Levers, find_levers
from tests.unit.fixing.test_evaluation import RULE, criteria, findings, read, subject


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def levers_of(text: str) -> Levers:
    Path("requirements.txt").write_text(text)
    stated = read("requirements.txt")
    failing = [one for one in findings(stated) if one.fails]
    return find_levers((stated,), failing, criteria().rules, EditableFiles((stated,)), None)


def test_safe_moves_come_first_and_the_nearest_of_them() -> None:
    moves = levers_of("deepspeed==0.16.4\n").changes["deepspeed"]
    assert [one.after for one in moves[:3]] == ["0.16.5", "0.16.6", "0.16.7"]
    assert [one.safe for one in moves] == sorted((one.safe for one in moves), reverse=True)
    assert next(one.after for one in moves if one.move == "minor").startswith("0.17.")


def test_a_label_stays_and_a_range_gets_floors() -> None:
    found = levers_of("torch==2.5.0+cu124\ntransformers>=4.48,<4.50\n").changes
    assert found["torch"][0].after == "2.5.1+cu124"
    assert all(one.ranged for one in found["transformers"])
    assert not any(one.ranged for one in found["torch"])


def test_a_release_that_has_no_such_build_is_no_move() -> None:
    found = {one.after for one in levers_of("torch==2.9.0+rocm6.4\n").changes["torch"]}
    assert "2.9.1+rocm6.4" in found
    assert "2.10.0+rocm6.4" not in found


@pytest.mark.parametrize(
    ("torch", "vision", "first"),
    [("2.6.0+cu118", "0.21.0+cu124", "0.21.0+cu118"), ("2.4.0+cu121", "0.20.1+cu124", "0.19.1+cu121")],
)
def test_what_is_built_with_torch_moves_to_the_build_beside_it_first(torch: str, vision: str, first: str) -> None:
    found = levers_of(f"torch=={torch}\ntorchvision=={vision}\n").changes["torchvision"]
    assert (found[0].after, found[0].safe) == (first, True)
    assert {one.after.partition("+")[2] for one in found} == {torch.partition("+")[2]}


def test_moves_that_a_remedy_advises_against_are_unsafe() -> None:
    moves = levers_of("deepspeed==0.16.4\n").changes["deepspeed"]
    assert all(one.kind == VERSION and one.why for one in moves)
    assert {one.why for one in moves if one.safe} == {"a newer release of the same series"}


def test_an_older_release_costs_more_where_a_rule_knows_a_newer_one() -> None:
    Path("requirements.txt").write_text("trl==1.9.2\n")
    Path("facts.yaml").write_text(
        "compatcheck: 1\nmodel: {from: llama-3-8b, load_dtype: bfloat16}\n"
        "training: {framework: trl, trainer: sft, use_liger_kernel: false, sharding: none}\n"
    )
    stated = read("requirements.txt", "facts.yaml")
    failing = [one for one in findings(stated) if one.rule_id == "trl/chunked-loss-casts-the-head-to-float32"]
    moves = find_levers((stated,), failing, criteria().rules, EditableFiles((stated,)), None).changes["trl"]
    assert {one.effect for one in moves if one.move.endswith("down")} == {OLDER_RELEASE}
    assert {one.effect for one in moves if one.move == "minor"} == {MINOR_RELEASE}


def test_an_older_release_costs_no_less_than_a_newer_one_that_a_rule_calls_unsafe() -> None:
    Path("requirements.txt").write_text("torch==2.13.0\n")
    Path("facts.yaml").write_text(
        "compatcheck: 1\nallocator: {pinned_max_round_threshold_mb: 64}\ntraining: {framework: custom}\n"
    )
    stated = read("requirements.txt", "facts.yaml")
    failing = [one for one in findings(stated) if one.rule_id == "torch/pinned-limit-hands-out-smaller-blocks"]
    assert failing
    moves = find_levers((stated,), failing, criteria().rules, EditableFiles((stated,)), None).changes["torch"]
    assert {one.effect for one in moves if one.move.endswith("down")} == {CHANGES_TRAINING}
    assert next(one.release for one in moves if one.effect == CHANGES_TRAINING) == "2.14.0"


def test_what_is_older_than_an_unsafe_way_back_costs_no_less() -> None:
    Path("requirements.txt").write_text("deepspeed==0.18.4\n")
    Path("facts.yaml").write_text(
        "compatcheck: 1\nmodel: llama-3-8b\nhardware: {world_size: 8}\n"
        "training: {sharding: zero, zero_stage: 2, optimizer: muon, optimizer_by_deepspeed: true, offload_optimizer: null,"
        " grad_accum_dtype: bfloat16, param_dtype: bfloat16, peft: null}\n"
    )
    stated = read("requirements.txt", "facts.yaml")
    failing = [one for one in findings(stated) if one.rule_id == "deepspeed/muon-momentum-on-device"]
    assert failing
    moves = find_levers((stated,), failing, criteria().rules, EditableFiles((stated,)), None).changes["deepspeed"]
    older = [one for one in moves if one.move.endswith("down") and one.release not in {"0.18.3", "0.18.4"}]
    assert (older[0].release, {one.effect for one in older}) == ("0.18.2", {CHANGES_TRAINING})


@pytest.mark.parametrize("stands", ["2.9.0", "2.9.1"])
def test_a_newer_release_that_a_remedy_leaves_out_is_no_move(stands: str) -> None:
    """torch 2.10.0 leaves the detour around cuDNN and brings the cuDNN that computes wrong results: the remedy begins at 2.11."""
    Path("requirements.txt").write_text(f"torch=={stands}\nnvidia-cudnn-cu12==9.10.2.21\n")
    Path("facts.yaml").write_text(
        "compatcheck: 1\nmodel: {model_type: qwen2_5_vl, has_conv3d: true}\ntraining: {compute_dtype: bfloat16}\n"
    )
    stated = read("requirements.txt", "facts.yaml")
    failing = [one for one in findings(stated) if one.rule_id == "torch/conv3d-half-precision-skips-cudnn"]
    assert failing
    moves = find_levers((stated,), failing, criteria().rules, EditableFiles((stated,)), None).changes["torch"]
    newer = {one.release for one in moves if not one.move.endswith("down")}
    assert "2.10.0" not in newer
    assert {"2.11.0", "2.12.0"} <= newer
    assert ("2.9.1" in newer) is (stands == "2.9.0")
    older = {one.release for one in moves if one.move.endswith("down")}
    assert "2.8.0" not in older
    assert {"2.6.0", "2.7.1"} <= older


@pytest.mark.parametrize("stands", ["deepspeed==0.16.4", "deepspeed>=0.16.4"])
def test_a_release_of_years_before_is_no_way_back(stands: str) -> None:
    found = {one.release for one in levers_of(f"{stands}\n").changes["deepspeed"]}
    assert "0.17.6" in found
    assert not {"0.3.16", "0.4.0", "0.7.7"} & found


def test_a_release_of_years_before_is_a_way_back_where_a_rule_names_it() -> None:
    Path("requirements.txt").write_text("transformers==5.24.0\nvllm==0.11.0\n")
    stated = read("requirements.txt")
    failing = [one for one in findings(stated) if one.rule_id == "vllm/reads-removed-tokenizer-attribute"]
    assert failing
    moves = find_levers((stated,), failing, criteria().rules, EditableFiles((stated,)), None).changes["transformers"]
    assert "4.30.0" in {one.release for one in moves}


def test_a_default_that_a_setting_gives_back_blames_no_release() -> None:
    Path("requirements.txt").write_text("trl==1.13.0\ntransformers==5.2.0\n")
    Path("facts.yaml").write_text(
        "compatcheck: 1\nmodel: llama-3-8b\ntraining: {framework: trl, trainer: sft, sharding: none, peft: none}\n"
    )
    stated = read("requirements.txt", "facts.yaml")
    (failing,) = (one for one in findings(stated) if one.rule_id == "trl/model-id-loads-in-float32")
    found = find_levers((stated,), [failing], criteria().rules, EditableFiles((stated,)), None)
    assert found.blamed(failing).isdisjoint({"transformers", "trl"}), "transformers 4 loads float32 as well"


@pytest.mark.parametrize(
    ("requirement", "facts", "rule_id"),
    [
        (
            "peft==0.21.2",
            "model: {from: falcon-h1-7b}\ntraining: {framework: custom, peft: lora, lora_target_modules: [all-linear]}\n",
            "peft/all-linear-names-mamba-projection",
        ),
        (
            "deepspeed==0.19.1",
            (
                "model: llama-3-8b\nrun: {repeated_initialize: true}\nhardware: {world_size: 8}\n"
                "training: {framework: custom, sharding: zero, peft: null, zero_stage: 2, offload_optimizer: null}\n"
            ),
            "deepspeed/engine-lives-as-long-as-its-model",
        ),
        (
            "deepspeed==0.18.9",
            (
                "model: llama-3-8b\nhardware: {world_size: 8}\ntraining: {framework: custom, sharding: zero, zero_stage: 2,"
                " deepcompile: true, compile: true, peft: null, grad_accum_dtype: bfloat16}\n"
            ),
            "deepspeed/deepcompile-reduce-targets-kept",  # the newer release is a remedy of stage 1 alone
        ),
        (  # whose ``when`` compares transformers, too
            "flash-attn==2.8.3\ntransformers==4.46.3\ntorch==2.5.1",
            (
                "model: {from: llama-3-8b, attn_implementation: flash_attention_2}\nhardware: {multiprocessors: 132}\n"
                "training: {framework: hf_trainer, full_determinism: true, packing: false, micro_batch_size: 1}\n"
            ),
            "flash-attn/deterministic-backward-splits-dq",
        ),
        (  # torchao is what its remedies move
            "peft==0.19.0\ntorchao==0.15.0",
            "model: {from: llama-3-8b, quantization: none}\ntraining: {framework: custom, peft: lora}\n",
            "peft/torchao-older-than-it-accepts",
        ),
    ],
)
def test_what_a_setting_or_a_hand_mends_blames_no_release(requirement: str, facts: str, rule_id: str) -> None:
    Path("requirements.txt").write_text(f"{requirement}\n")
    Path("facts.yaml").write_text(f"compatcheck: 1\n{facts}")
    stated = read("requirements.txt", "facts.yaml")
    (failing,) = (one for one in findings(stated) if one.rule_id == rule_id)
    found = find_levers((stated,), [failing], criteria().rules, EditableFiles((stated,)), None)
    assert requirement.partition("=")[0] not in found.blamed(failing)


def test_releases_that_do_not_go_together_are_blamed_though_a_note_says_which_do() -> None:
    Path("requirements.txt").write_text("torch==2.6.0\nxformers==0.0.28\n")
    stated = read("requirements.txt")
    (failing,) = (one for one in findings(stated) if one.rule_id == "xformers/kernels-for-another-torch")
    found = find_levers((stated,), [failing], criteria().rules, EditableFiles((stated,)), None)
    assert {"torch", "xformers"} <= found.blamed(failing)


def test_what_no_index_has_is_left_alone() -> None:
    assert "deepspeed" not in levers_of("deepspeed @ file:///w/deepspeed-0.16.4-py3-none-any.whl\n").changes


def test_a_finding_blames_its_packages_and_the_settings_its_remedies_name() -> None:
    failing = [one for one in findings(subject()) if one.rule_id == RULE]
    found = find_levers((subject(),), failing, criteria().rules, EditableFiles((subject(),)), None)
    blamed = found.blamed(failing[0])
    assert "deepspeed" in blamed
    assert any(lever.rpartition("#")[0].endswith("facts.yaml") for lever in blamed)


def test_compiled_code_blames_the_torch_beside_it() -> None:
    Path("requirements.txt").write_text("torch==2.5.1\ntorchvision==0.17.0\n")
    stated = read("requirements.txt")
    (misfit,) = (one for one in findings(stated) if one.rule_id == "_stack/built-for-another-torch")
    found = find_levers((stated,), [misfit], criteria().rules, EditableFiles((stated,)), None)
    assert {"torch", "torchvision"} <= found.blamed(misfit)
