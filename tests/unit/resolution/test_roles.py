"""Facts of the models of one run: each has its own, and all share what the run states for all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from compatcheck.core.document import Document, Statement, Unresolved
from compatcheck.core.environment import Environment, Package
from compatcheck.core.source import Source
from compatcheck.resolution.resolve import resolve
from compatcheck.resolution.subject import Subject
from compatcheck.rules.locate import open_rules
from tests.unit.frameworks.launch_script.written_commands import documents as written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.core.facts import Fact

MICRO, STEPS, STAGE = "training.micro_batch_size", "training.gradient_accumulation_steps", "training.zero_stage"


def command(*statements: Statement, **more: Any) -> Document:
    return Document(more.pop("reader", "launcher"), Source("train.sh", None, 3), statements, is_command=True, **more)


def values(subject: Subject, name: str) -> dict[str, Any]:
    return {role: facts[name].value for role, facts in subject.roles.items() if name in facts}


def test_without_a_role_there_is_one_set_of_facts() -> None:
    subject = resolve("s", rules=open_rules(), documents=[command(Statement(MICRO, "m", 4))])
    assert values(subject, MICRO) == {"train": 4}


def test_roles_come_in_their_order_and_share_what_is_said_of_all() -> None:
    documents = [
        command(
            Statement(MICRO, "critic", 2, "critic"),
            Statement(MICRO, "actor", 4, "actor"),
            Statement(STEPS, "steps", 8),
            Statement(None, "there", 1, "reference"),
        )
    ]
    subject = resolve("s", rules=open_rules(), documents=documents)
    assert list(subject.roles) == ["actor", "critic", "reference"]
    assert values(subject, MICRO) == {"actor": 4, "critic": 2}
    assert values(subject, STEPS) == {"actor": 8, "critic": 8, "reference": 8}


def test_what_a_document_says_of_one_role_replaces_what_it_says_of_all() -> None:
    documents = [
        command(Statement(MICRO, "all", 1), Statement(MICRO, "own", 2, "critic"), Statement(None, "x", 1, "actor"))
    ]
    subject = resolve("s", rules=open_rules(), documents=documents)
    assert values(subject, MICRO) == {"actor": 1, "critic": 2}
    assert subject.roles["critic"][MICRO].alternatives == ()


def test_what_a_file_says_of_one_role_replaces_what_others_of_its_program_say_of_all() -> None:
    own = Document("nemo-rl", Source("recipe.yaml"), (Statement("model.name", "teacher.model_name", "t", "reference"),))
    shared = Document(
        "nemo-rl",
        Source("base.yaml"),
        (Statement("model.name", "policy.model_name", "p"), Statement(None, "x", 1, "actor")),
    )
    for documents in ([own, shared], [shared, own]):
        subject = resolve("s", rules=open_rules(), documents=documents)
        assert values(subject, "model.name") == {"actor": "p", "reference": "t"}
        assert not subject.conflicts


def test_a_model_of_its_own_replaces_the_shared_one_as_a_whole() -> None:
    shared = Document(
        "model", Source("a.json"), (Statement("model.hidden_size", "h", 8), Statement("model.num_experts", "e", 4))
    )
    own = Document("model", Source("b.json"), (Statement("model.hidden_size", "h", 16, "critic"),))
    roles = command(Statement(None, "x", 1, "actor"))
    subject = resolve("s", rules=open_rules(), documents=[roles, shared, own])
    assert values(subject, "model.hidden_size") == {"actor": 8, "critic": 16}
    assert values(subject, "model.num_experts") == {"actor": 4}


def test_the_command_line_wins_over_files_and_says_its_line() -> None:
    file = Document("hf_trainer", Source("c.yaml"), (Statement(MICRO, "m", 1),))
    subject = resolve("s", rules=open_rules(), documents=[file, command(Statement(MICRO, "--m", 4), lines={"--m": 9})])
    fact = subject.roles["train"][MICRO]
    assert (fact.value, fact.origin, fact.sources[0].line) == (4, "script", 9)
    assert fact.alternatives == ((1, Source("c.yaml", "m")),)


def test_a_value_nobody_knows_leaves_no_room_for_a_weaker_one() -> None:
    file = Document("hf_trainer", Source("c.yaml"), (Statement(MICRO, "m", 1), Statement(STEPS, "s", 2)))
    open_value = command(unresolved=(Unresolved(MICRO, "--m", "depends on $M"),), lines={"--m": 5})
    subject = resolve("s", rules=open_rules(), documents=[file, open_value])
    assert values(subject, MICRO) == {}
    assert values(subject, STEPS) == {"train": 2}
    assert subject.unresolved == ((MICRO, Source("train.sh", "--m", 5), "depends on $M"),)
    stated = resolve("s", rules=open_rules(), documents=[file, open_value], settings={MICRO: (3, Source("--set"))})
    assert values(stated, MICRO) == {"train": 3}
    assert stated.unresolved == ()


def test_a_value_nobody_knows_of_one_role_is_open_there_alone() -> None:
    document = command(
        Statement(MICRO, "a", 4, "actor"), unresolved=(Unresolved(MICRO, "c", "depends on $C", "critic"),)
    )._replace(statements=(Statement(MICRO, "a", 4, "actor"), Statement(None, "x", 1, "critic")))
    subject = resolve("s", rules=open_rules(), documents=[document])
    assert values(subject, MICRO) == {"actor": 4}
    assert [name for name, _, _ in subject.unresolved] == [MICRO]


def test_defaults_of_one_role_are_of_that_role() -> None:
    packages = {"verl": Package("verl", "0.5.0", Source("e"))}
    document = command(Statement(None, "x", 1, "actor"), Statement(None, "x", 1, "critic"), reader="verl")
    subject = resolve(
        "s", rules=open_rules(), environment=Environment("e", packages, complete=False), documents=[document]
    )
    assert values(subject, "training.entropy_coefficient") == {"actor": 0.0}
    assert subject.roles["critic"]["training.gradient_checkpointing"].value is True
    facts_file = Document("native", Source("f.yaml"), (Statement("training.framework", "training.framework", "verl"),))
    alone = resolve(
        "s", rules=open_rules(), environment=Environment("e", packages, complete=False), documents=[facts_file]
    )
    assert values(alone, "training.entropy_coefficient") == {"train": 0.0}


def test_the_reference_is_left_out_where_there_is_none() -> None:
    def roles(value: bool) -> list[str]:  # noqa: FBT001 (a fact's value)
        statements = [Statement(None, "x", 1, "actor"), Statement(None, "x", 1, "reference")]
        document = command(Statement("training.reference_model", "k", value), *statements)
        return list(resolve("s", rules=open_rules(), documents=[document]).roles)

    assert roles(True) == ["actor", "reference"]
    assert roles(False) == ["actor"]


_MEGATRON = (
    "python3 -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer.yaml "
    "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4 actor_rollout_ref.actor.megatron.param_offload=True "
    "actor_rollout_ref.actor.use_kl_loss=True"
)
"""A run of verl on Megatron that has settings for the actor alone."""


def roles_of(line: str, release: str) -> Mapping[str, Mapping[str, Fact]]:
    (document,) = written(line)
    environment = Environment("r.txt", {"verl": Package("verl", release, Source("r.txt"))}, complete=False)
    return resolve("x", rules=open_rules(()), environment=environment, documents=[document]).roles


@pytest.mark.parametrize(
    ("release", "role", "tensor", "moved"),
    [
        # ${oc.select:actor_rollout_ref.actor.megatron. …} from 0.7 on
        ("0.7.1", "reference", 4, "cpu"),
        ("0.9.1", "reference", 4, "cpu"),
        # before, the keys of its own, but one layout of ranks for all models of a process
        ("0.5.0", "reference", 4, None),
        ("0.7.1", "critic", 4, None),
        ("0.8.0", "critic", 1, None),
    ],
)
def test_the_reference_of_verl_on_megatron_lies_as_the_actor_does(
    release: str, role: str, tensor: int, moved: str | None
) -> None:
    facts = roles_of(_MEGATRON, release)[role]
    assert (facts["training.tensor_parallel"].value, facts["training.offload_param"].value) == (tensor, moved)


def test_a_row_that_follows_another_model_names_what_was_written() -> None:
    fact = roles_of(_MEGATRON, "0.7.1")["reference"]["training.tensor_parallel"]
    assert fact.sources[0].key == "actor_rollout_ref.actor.megatron.tensor_model_parallel_size"
    assert "default of verl on Megatron" in fact.sources[-1].path


def test_what_the_actor_leaves_open_is_open_for_who_follows_it() -> None:
    roles = roles_of(_MEGATRON.replace("tensor_model_parallel_size=4", "tensor_model_parallel_size=$TP"), "0.8.0")
    assert all("training.tensor_parallel" not in roles[role] for role in ("actor", "reference"))


def test_the_reference_of_verl_on_fsdp_splits_sequences_as_the_actor_does() -> None:
    actor = "actor_rollout_ref.actor."
    split = f"python3 -m verl.trainer.main_ppo {actor}use_kl_loss=True {actor}ulysses_sequence_parallel_size=2"
    assert roles_of(split, "0.7.1")["reference"]["training.context_parallel"].value == 2


def test_sequences_are_split_where_matrices_are() -> None:
    name, key = "training.sequence_parallel", "actor_rollout_ref.actor.megatron.sequence_parallel"
    whole = _MEGATRON.replace("size=4", "size=1")
    lines = (_MEGATRON, f"{_MEGATRON} {key}=False", f"{whole} {key}=True")
    assert [roles_of(line, "0.7.1")["actor"][name].value for line in lines] == [True, False, False]


def test_precision_on_megatron_is_said_by_its_configuration() -> None:
    facts = roles_of(_MEGATRON, "0.7.1")["actor"]
    names = ("training.param_dtype", "training.grad_accum_dtype", "model.attn_implementation")
    assert [facts[name].value for name in names] == ["bfloat16", "float32", "flash_attention_2"]
    assert facts["training.distributed_optimizer"].value is True
    section = "actor_rollout_ref.actor.megatron."
    summed = f"+{section}override_ddp_config.grad_reduce_in_fp32=False"
    whole = f"{section}override_transformer_config.attention_backend=unfused"
    facts = roles_of(f"{_MEGATRON} {summed} {whole}", "0.7.1")["actor"]
    assert [facts[name].value for name in names] == ["bfloat16", "bfloat16", "eager"]


def test_stages_that_take_turns_are_said_to_have_no_formula() -> None:
    section = "actor_rollout_ref.actor.megatron."
    facts = roles_of(
        f"{_MEGATRON} {section}virtual_pipeline_model_parallel_size=2 "
        f"+{section}override_transformer_config.num_layers_in_last_pipeline_stage=13",
        "0.7.1",
    )["actor"]
    assert facts["training.unpriced"].value == ("uneven_stages", "virtual_stages")


@pytest.mark.parametrize(
    "started",
    [
        "pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 2 --seq-length 64 --micro-batch-size 1",
        "train.py --hf-checkpoint x --rollout-batch-size 8",
    ],
)
def test_megatron_splits_no_sequence_where_matrices_are_whole(started: str) -> None:
    for degree, splits in ((1, False), (2, True)):
        (document,) = written(f"python {started} --tensor-model-parallel-size {degree} --sequence-parallel")
        facts = resolve("x", rules=open_rules(()), documents=[document]).roles["train"]
        assert facts["training.sequence_parallel"].value is splits


@pytest.mark.parametrize(("release", "there"), [("0.5.9.post1", True), ("0.6.0", False), ("0.9.0", False)])
def test_openrlhf_loads_no_reference_without_a_kl_term(release: str, *, there: bool) -> None:
    (document,) = written(
        "python3 -m openrlhf.cli.train_ppo_ray --pretrain x --advantage_estimator rloo --init_kl_coef 0"
    )
    environment = Environment("r.txt", {"openrlhf": Package("openrlhf", release, Source("r.txt"))}, complete=False)
    roles = resolve("x", rules=open_rules(()), environment=environment, documents=[document]).roles
    assert ("reference" in roles, roles["actor"]["training.reference_model"].value) == (there, there)


def test_what_follows_from_a_renamed_option_is_said_under_its_new_name() -> None:
    line = (
        "python3 -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path x --ds.packing_samples --train.colocate_all "
        "--train.async_enable"
    )
    (document,) = written(line)
    environment = Environment("r.txt", {"openrlhf": Package("openrlhf", "0.11.0", Source("r.txt"))}, complete=False)
    subject = resolve("x", rules=open_rules(()), environment=environment, documents=[document])
    facts = subject.roles["actor"]
    assert not subject.skipped
    assert [facts[name].sources[0].key for name in ("model.attn_implementation", "rollout.colocated")] == [
        "ds.packing_samples",
        "train.async_enable",
    ]
    assert facts["rollout.gpu_memory_utilization"].value == 0.95
