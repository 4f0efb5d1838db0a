"""Facts of the models of one run: each has its own, and all share what the run states for all."""

from __future__ import annotations

from typing import Any

from compatcheck.core.document import Document, Statement, Unresolved
from compatcheck.core.environment import Environment, Package
from compatcheck.core.source import Source
from compatcheck.resolution.resolve import resolve
from compatcheck.resolution.subject import Subject
from compatcheck.rules.locate import open_rules

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
