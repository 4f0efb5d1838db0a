"""A remedy leads out of the rule, in the direction it says, or is not shown."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compatcheck.core.environment import Environment
from compatcheck.core.report import FindingRemedy
from compatcheck.core.versions import compile_specifier, contains, parse_version
from compatcheck.matching.remedies import good_releases, write_remedies
from compatcheck.resolution.scope import FactScope
from compatcheck.rules.locate import open_rules
from compatcheck.rules.rule import Clause, Remedy, Rule
from tests.unit.matching.drawn_subjects import facts_of, scope, stack
from tests.unit.rules.drawn_rules import RELEASES, rule, rule_set

KNOWN = RELEASES["releases/deepspeed"]


def written(made: Rule, environment: Environment | None = None) -> tuple[FindingRemedy, ...]:
    rules = rule_set(made)
    compiled = next(rules.all_rules())
    return write_remedies(compiled, rules.texts(compiled), scope(rules, {}, environment))


def remedy(verb: str, target: dict[str, Any], note: str | None = None) -> Remedy:
    return Remedy(verb=verb, target=target, safety="safe", note=note)


BOUNDS = st.tuples(st.sampled_from(KNOWN), st.sampled_from(KNOWN)).map(lambda pair: f">={min(pair)},<{max(pair)}")


@settings(max_examples=200)
@given(
    BOUNDS,
    BOUNDS,
    st.sampled_from(["upgrade", "downgrade"]),
    st.sampled_from(["", ">=0.16", "<0.17", ">=0.15.3,<0.16.9"]),
    st.sampled_from(KNOWN),
)
def test_the_proposed_release_is_good_allowed_and_in_the_right_direction(
    first: str, second: str, verb: str, allowed: str, current: str
) -> None:
    made = rule(
        clauses=(Clause(packages={"deepspeed": first}), Clause(packages={"deepspeed": second})),
        remedies=(remedy(verb, {"deepspeed": allowed}),),
    )
    here = parse_version(current)
    assert here is not None
    for entry in written(made, stack(deepspeed=current)):
        if "nearest good release" not in entry.text:
            continue
        assert entry.command is not None
        proposed = entry.command.partition("==")[2].rstrip("'")
        version = parse_version(proposed)
        assert version is not None
        assert all(contains(compile_specifier(text), proposed) == "no" for text in (first, second))
        assert contains(compile_specifier(allowed), proposed) == "yes"
        assert (version > here) == (verb == "upgrade")


def test_the_nearest_good_release_with_the_installer_of_the_environment() -> None:
    (entry,) = written(rule(), stack(deepspeed="0.16.4"))
    assert entry.text == "upgrade deepspeed to 0.16.8 (nearest good release)"
    assert entry.command == "pip install 'deepspeed==0.16.8'"
    environment = stack(deepspeed="0.16.4")
    package = environment.packages["deepspeed"]._replace(details={"installer": "uv"})
    (entry,) = written(rule(), environment._replace(packages={"deepspeed": package}))
    assert entry.command == "uv pip install 'deepspeed==0.16.8'"


def test_a_clause_about_another_release_of_a_package_that_stays_holds_nothing() -> None:
    made = rule(
        clauses=(
            Clause(packages={"deepspeed": ">=0.16.8", "torch": "<2.5"}),
            Clause(packages={"deepspeed": ">=0.16,<0.16.8", "torch": "<2.2"}),
        ),
        remedies=(remedy("downgrade", {"deepspeed": "<0.16.8"}),),
    )
    (entry,) = written(made, stack(deepspeed="0.16.9", torch="2.4.1"))
    assert entry.text == "downgrade deepspeed to 0.16.7 (nearest good release)"
    (entry,) = written(made, stack(deepspeed="0.16.9", torch="2.1.2"))
    assert entry.text == "downgrade deepspeed to 0.15.9 (nearest good release)"


def test_a_clause_that_a_remedy_leads_out_of_by_another_package_holds_nothing() -> None:
    made = rule(
        clauses=(
            Clause(packages={"deepspeed": ">=0.15,<0.16"}),
            Clause(packages={"deepspeed": ">=0.16,<0.17", "torch": "<2.2"}),
        ),
        remedies=(remedy("upgrade", {"deepspeed": ">=0.16", "torch": ">=2.2"}),),
    )
    rules = rule_set(made, **{"releases/torch": ["2.1.2", "2.2.0"]})
    compiled = next(rules.all_rules())
    environment = stack(deepspeed="0.15.4", torch="2.1.2")
    (entry,) = write_remedies(compiled, rules.texts(compiled), scope(rules, {}, environment))
    assert entry.command == "pip install 'deepspeed==0.16.0' 'torch==2.2.0'"


def test_a_change_that_leads_nowhere_new_is_left_out() -> None:
    made = rule(
        clauses=(Clause(packages={"deepspeed": "<0.16 || >=0.17"}),),
        remedies=(remedy("upgrade", {"deepspeed": ">=0.16,<0.17"}), remedy("downgrade", {"deepspeed": ">=0.16,<0.17"})),
    )
    assert [entry.text for entry in written(made, stack(deepspeed="0.15.4"))] == [
        "upgrade deepspeed to 0.16.0 (nearest good release)"
    ]
    assert [entry.text for entry in written(made, stack(deepspeed="0.17.4"))] == [
        "downgrade deepspeed to 0.16.9 (nearest good release)"
    ]


@pytest.mark.parametrize("version", [">=0.15", "local-build"])
def test_without_a_comparable_release_the_range_is_shown(version: str) -> None:
    (entry,) = written(rule(), stack(deepspeed=version))
    assert entry.command == "pip install 'deepspeed>=0.16.8'"
    assert "nearest" not in entry.text


def test_a_release_that_is_not_known_yet_is_shown_as_a_range() -> None:
    made = rule(
        clauses=(Clause(packages={"deepspeed": ">=0.16"}),), remedies=(remedy("upgrade", {"deepspeed": ">=0.99"}),)
    )
    (entry,) = written(made, stack(deepspeed="0.16.4"))
    assert entry.command == "pip install 'deepspeed>=0.99'"


def test_components_have_no_pip_line() -> None:
    made = rule(clauses=(Clause(packages={"cudnn": "<9.2"}),), remedies=(remedy("upgrade", {"cudnn": ">=9.2"}),))
    (entry,) = written(made)
    assert entry.command is None
    assert entry.text == "upgrade cudnn to >=9.2"


def test_settings_variables_and_notes() -> None:
    made = rule(
        remedies=(
            remedy("set", {"training.use_reentrant": True, "training.peft": None}, "costs a little"),
            remedy("env", {"NCCL_CUMEM_ENABLE": "0"}),
            remedy("note", {}, "do without"),
        )
    )
    first, second, third = written(made)
    assert (first.text, first.command, first.note) == (
        "set training.use_reentrant to true, training.peft to none",
        None,
        "costs a little",
    )
    assert (second.text, second.command) == (
        "set NCCL_CUMEM_ENABLE=0 in the environment",
        "export NCCL_CUMEM_ENABLE=0",
    )
    assert (third.text, third.command, third.note) == ("do without", None, None)


LIGER = {"training.use_liger_kernel": True}
REENTRANT = {"training.use_reentrant": True}
IN_WORDS = "set training.use_liger_kernel (Liger kernels replace modules) to true"
REENTRANT_IN_WORDS = "set training.use_reentrant (reentrant variant of activation checkpointing) to true"


@pytest.mark.parametrize(
    ("framework", "versions", "target", "text"),
    [
        ("hf_trainer", {"transformers": "4.51.3"}, LIGER, "set use_liger_kernel to true (training.use_liger_kernel)"),
        (
            "trl",
            {"trl": "0.19.1", "transformers": "4.51.3"},
            LIGER,
            "set use_liger_kernel to true (training.use_liger_kernel)",
        ),
        ("axolotl", {"axolotl": "0.9.0", "transformers": "4.51.3"}, LIGER, IN_WORDS),
        (
            "axolotl",
            {"axolotl": "0.9.0", "transformers": "4.51.3"},
            {"training.gradient_checkpointing": True},
            "set gradient_checkpointing to true (training.gradient_checkpointing)",
        ),
        (
            "axolotl",
            {"axolotl": "0.9.0", "transformers": "4.51.3"},
            {"training.sync_each_batch": True},
            "set accelerator_config.gradient_accumulation_kwargs.sync_each_batch to true (training.sync_each_batch)",
        ),
        (
            "llamafactory",
            {"transformers": "4.51.3"},
            LIGER,
            "set enable_liger_kernel to true (training.use_liger_kernel)",
        ),
        (
            "axolotl",
            {"axolotl": "0.9.0", "transformers": "4.51.3"},
            {"training.optimizer_implementation": "for_loop"},
            "set training.optimizer_implementation to for_loop (key optimizer)",
        ),
        ("llamafactory", {"llamafactory": "0.9.1"}, REENTRANT, REENTRANT_IN_WORDS),
        ("llamafactory", {"llamafactory": "0.9.3"}, REENTRANT, "set use_reentrant_gc to true (training.use_reentrant)"),
        ("openrlhf", {"openrlhf": "0.6.1"}, LIGER, IN_WORDS),
        ("openrlhf", {"openrlhf": "0.6.2"}, LIGER, "set use_liger_kernel to true (training.use_liger_kernel)"),
        ("openrlhf", {"openrlhf": ">=0.6"}, LIGER, IN_WORDS),
        ("verl", {"verl": "0.5.0"}, REENTRANT, REENTRANT_IN_WORDS),
    ],
)
def test_a_key_is_one_of_the_program_that_reads_the_file(
    framework: str, versions: dict[str, str], target: dict[str, Any], text: str
) -> None:
    made = rule_set(rule(remedies=(remedy("set", target),)))
    compiled = next(made.all_rules())
    facts = facts_of({"training.framework": framework})
    real = FactScope(facts, stack(complete=False, **versions), open_rules(()))
    (entry,) = write_remedies(compiled, made.texts(compiled), real)
    assert entry.text == text


def test_a_program_that_writes_its_own_deepspeed_configuration_has_no_keys_of_deepspeed() -> None:
    target = {"training.offload_optimizer_pin_memory": False}
    made = rule_set(rule(remedies=(remedy("set", target),)))
    compiled = next(made.all_rules())
    texts = []
    for framework in ("hf_trainer", "openrlhf"):
        facts = facts_of({"training.framework": framework, "training.zero_stage": 3})
        versions = stack(complete=False, openrlhf="0.9.0", deepspeed="0.16.4", transformers="4.51.3")
        texts += [
            entry.text
            for entry in write_remedies(compiled, made.texts(compiled), FactScope(facts, versions, open_rules(())))
        ]
    assert texts == [
        "set zero_optimization.offload_optimizer.pin_memory to false (training.offload_optimizer_pin_memory)",
        "set training.offload_optimizer_pin_memory (page-locked optimizer state) to false",
    ]


def test_a_remedy_under_a_condition_is_given_where_it_holds_and_keeps_it_where_nobody_knows() -> None:
    under = Remedy(
        verb="set",
        target={"training.use_reentrant": True},
        safety="safe",
        note="for stage 3",
        when="training.zero_stage == 3",
    )
    made = rule_set(rule(remedies=(under,)))
    compiled = next(made.all_rules())
    texts = made.texts(compiled)
    stages: tuple[dict[str, Any], ...] = ({"training.zero_stage": 3}, {"training.zero_stage": 2}, {})
    known, refuted, unknown = (write_remedies(compiled, texts, scope(made, facts)) for facts in stages)
    assert [(entry.text, entry.note) for entry in known] == [("set training.use_reentrant to true", "for stage 3")]
    assert refuted == ()
    assert [(entry.text, entry.note) for entry in unknown] == [
        ("set training.use_reentrant to true (for stage 3)", None)
    ]


def test_a_clause_that_does_not_hold_here_holds_no_release() -> None:
    """ms-swift 3.5.0 cures DPO without sequence parallelism, whatever a clause about sequence parallelism holds."""
    clauses = (
        Clause(packages={"deepspeed": "<0.16.0"}, when="training.context_parallel == 1"),
        Clause(packages={"deepspeed": ">=0.15.0,<0.16.8"}, when="training.context_parallel > 1"),
    )
    made = rule_set(rule(clauses=clauses, remedies=(remedy("upgrade", {"deepspeed": ">=0.15"}),)))
    compiled = next(made.all_rules())
    texts = [
        entry.text
        for ranks in (1, 2)
        for entry in write_remedies(
            compiled,
            made.texts(compiled),
            scope(made, {"training.context_parallel": ranks}, stack(deepspeed="0.14.5")),
        )
    ]
    ends = [contains(compile_specifier(">=0.16.0,<0.16.8"), text.split()[3]) for text in texts]
    assert ends == ["yes", "no"]


@pytest.mark.parametrize(
    ("origin", "sure", "nearest"),
    [("configuration", True, "1.8.0"), ("reader-default", False, "1.8.0"), ("reader-default", True, None)],
)
def test_a_default_of_the_release_that_is_there_refutes_no_clause_about_others(
    origin: str, *, sure: bool, nearest: str | None
) -> None:
    """A chunked loss that is stated stays one; by default there is one in some releases only."""
    rules = open_rules(())
    made = rules.find("trl/sft-loss-materialises-logits")
    assert made is not None
    facts = {**facts_of({"training.framework": "trl", "training.loss_type": "chunked_nll"})}
    facts["training.loss_type"] = facts["training.loss_type"]._replace(origin=origin)
    here = FactScope(facts, stack(trl="1.9.0"), rules)
    found = good_releases(made, "trl", {"trl": ">=1.4"}, "downgrade", here, sure=sure)
    assert next(found, None) == nearest


def test_a_release_is_named_by_the_narrowest_remedy_that_allows_it() -> None:
    partial, whole = (
        remedy("upgrade", {"deepspeed": bounds}, note)
        for bounds, note in ((">=0.15.0", "half of it"), (">=0.16.8", "all of it"))
    )
    held = Clause(packages={"deepspeed": "<0.16.8"})
    entries = written(rule(clauses=(held,), remedies=(partial, whole)), stack(deepspeed="0.14.5"))
    assert [entry.note for entry in entries] == ["all of it"]


def test_a_remedy_that_changes_two_packages_leaves_a_clause_by_either() -> None:
    made = open_rules(()).find("transformers/gpt-bigcode-sdpa-takes-math-path")
    assert made is not None
    rules = open_rules(())
    facts = {"model.model_type": "gpt_bigcode", "model.num_key_value_heads": 1}
    here = FactScope(facts_of(facts), stack(transformers="4.37.2", torch="2.1.2"), rules)
    first = write_remedies(made, rules.texts(made), here)[0]
    assert first.command == "pip install 'transformers==4.39.0' 'torch==2.2.0'"


CU118 = "install the build of the same torch release for CUDA 11.8 (cu118) from PyTorch's own index"
CU12 = "install the build of the same torch release for CUDA 12 (cu126 or cu128) from PyTorch's own index"


@pytest.mark.parametrize(
    ("name", "versions", "facts", "texts"),
    [
        (
            "nvidia/driver-older-than-cuda",
            {"torch": "2.6.0"},
            {"runtime.torch_cuda": "12.4", "hardware.driver": "470.82.01"},
            ["upgrade driver to >=525", CU118],
        ),
        (
            "nvidia/driver-older-than-cuda",
            {"torch": "2.10.0"},
            {"runtime.torch_cuda": "12.8", "hardware.driver": "470.82.01"},
            ["upgrade driver to >=525"],
        ),
        (
            "nvidia/driver-older-than-cuda",
            {"torch": "2.11.0"},
            {"runtime.torch_cuda": "13.0", "hardware.driver": "550.54.15"},
            ["upgrade driver to >=580", CU12],
        ),
        (
            "nvidia/driver-older-than-cuda",
            {"torch": "2.11.0"},
            {"runtime.torch_cuda": "13.0", "hardware.driver": "470.82.01"},
            ["upgrade driver to >=580"],
        ),
        (
            "nvidia/cuda-compat-on-geforce",
            {"torch": "2.6.0"},
            {"runtime.torch_cuda": "12.4", "hardware.driver": "470.82.01"},
            ["upgrade driver to >=525", "an image for a CUDA release that the driver supports"],
        ),
        (
            "torch/no-kernels-for-gpu",
            {"torch": "2.6.0"},
            {"hardware.compute_capability": 12.0},
            ["for Blackwell: torch 2.7 or newer built for CUDA 12.8 or newer"],
        ),
        ("torch/pinned-memory-rounded-to-power-of-two", {"torch": "2.5.1"}, {}, []),
        (
            "accelerate/fsdp1-no-sync-keeps-unsharded-gradients",
            {"accelerate": "1.14.0"},
            {"training.fsdp_offload_params": True},
            ["set training.gradient_accumulation_steps to 1"],
        ),
        (
            "torch/pinned-memory-rounded-to-power-of-two",
            {"torch": "2.13.0"},
            {},
            ["set PYTORCH_ALLOC_CONF=pinned_max_cached_size_mb:64 in the environment"],
        ),
        (
            "torch/pinned-memory-rounded-to-power-of-two",
            {"torch": "2.14.0"},
            {},
            ["set PYTORCH_ALLOC_CONF=pinned_max_round_threshold_mb:64 in the environment"],
        ),
    ],
)
def test_advice_is_for_the_releases_that_are_there(
    name: str, versions: dict[str, str], facts: dict[str, Any], texts: list[str]
) -> None:
    rules = open_rules(())
    found = rules.find(name)
    assert found is not None
    remedies = write_remedies(found, rules.texts(found), FactScope(facts_of(facts), stack(**versions), rules))
    shown = [entry.text for entry in remedies if "pin_memory" not in entry.text]
    assert shown == texts
