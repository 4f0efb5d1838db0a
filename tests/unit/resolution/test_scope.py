"""Packages, components and variables: there, not there, or not known."""

from __future__ import annotations

from typing import Any

import pytest

from compatcheck.core.environment import Environment, Package
from compatcheck.core.facts import Fact
from compatcheck.core.selection import Choice
from compatcheck.core.source import Source
from compatcheck.core.versions import compile_specifier
from compatcheck.resolution.scope import FactScope, version_need
from compatcheck.rules.compile import compile_database, open_compiled
from compatcheck.rules.database import RuleSet
from compatcheck.rules.expression import Unknown

RULES = RuleSet(
    (
        open_compiled(
            compile_database(
                [], {"releases/deepspeed": ["0.15.4", "0.16.0", "0.16.8"], "tables/t": {"a": 1}}, "2026-01-01"
            ),
            "t",
        ),
    )
)
RANGE = compile_specifier(">=0.16,<0.16.8")


def scope(facts: dict[str, Any] | None = None, *, complete: bool = False, **versions: str) -> FactScope:
    packages = {}
    for name, text in versions.items():
        ranged = text == "absent" or text[:1] in "<>=" or not text
        packages[name] = Package(name, None if ranged else text, Source("env"), text if ranged else None)
    found = {name: Fact(name, value, "configuration", (Source("f"),)) for name, value in (facts or {}).items()}
    return FactScope(found, Environment("env", packages, complete=complete), RULES)


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("0.16.4", "yes"),
        ("0.16.8", "no"),
        ("0.16.8rc1", "boundary"),
        ("nonsense", "unknown"),
        ("", "some"),
        (">=0.16.8", "no"),
        (">=0.16,<0.16.8", "yes"),
        (">=0.15", "some"),
        (">=99", "no"),
        ("absent", "no"),
    ],
)
def test_a_package_against_a_range(text: str, verdict: str) -> None:
    assert scope(deepspeed=text).in_range("deepspeed", RANGE) == verdict
    assert scope(deepspeed=text, complete=True).in_range("deepspeed", RANGE) == verdict


@pytest.mark.parametrize(
    ("complete", "bounds", "verdict"),
    [
        (False, RANGE, "unknown"),
        (True, RANGE, "no"),
        (False, "present", "unknown"),
        (True, "present", "no"),
        (False, "absent", "unknown"),
        (True, "absent", "yes"),
    ],
)
def test_an_unlisted_package_is_absent_only_where_the_list_is_complete(
    *, complete: bool, bounds: Any, verdict: str
) -> None:
    assert scope(complete=complete).in_range("deepspeed", bounds) == verdict


@pytest.mark.parametrize(("text", "present"), [("0.16.4", "yes"), ("", "yes"), (">=1", "yes"), ("absent", "no")])
def test_presence(text: str, present: str) -> None:
    found = scope(deepspeed=text)
    assert found.in_range("deepspeed", "present") == present
    assert found.in_range("deepspeed", "absent") == ("no" if present == "yes" else "yes")


def test_a_component_is_its_fact() -> None:
    bounds = compile_specifier(">=9.1")
    assert scope({"runtime.cudnn": "9.10.2"}).in_range("cudnn", bounds) == "yes"
    assert scope({"runtime.cudnn": "8.9"}, complete=True).in_range("cudnn", bounds) == "no"
    assert scope(complete=True).in_range("cudnn", bounds) == "unknown"
    assert scope(complete=True).in_range("cudnn", "absent") == "unknown"
    assert scope({"runtime.torch_cuda": None}).in_range("cuda", "absent") == "yes"
    assert scope({"runtime.torch_cuda": None}).in_range("cuda", compile_specifier("<13")) == "no"
    assert version_need("cudnn") == "runtime.cudnn"
    assert version_need("deepspeed") == "version of deepspeed"


def test_an_allowed_but_not_required_package_is_only_some() -> None:
    package = Package("deepspeed", "0.16.4", Source("c.txt"), is_optional=True)
    found = FactScope({}, Environment("c.txt", {"deepspeed": package}, complete=False), RULES)
    assert found.in_range("deepspeed", RANGE) == "some"
    assert found.in_range("deepspeed", "present") == "some"
    assert found.in_range("deepspeed", "absent") == "some"
    assert found.in_range("deepspeed", compile_specifier(">=1")) == "no"


def test_what_brings_an_optional_package_is_what_would_decide() -> None:
    package = Package(
        "deepspeed",
        "0.16.4",
        Source("uv.lock"),
        is_optional=True,
        brought_by=tuple(Choice("extra", name) for name in "abcd"),
    )
    found = FactScope({}, Environment("uv.lock", {"deepspeed": package}, complete=True), RULES)
    needs = "deepspeed (comes with --extra a or --extra b or --extra c or others)"
    assert found.installed("deepspeed", "present") == Unknown(frozenset((needs,)))
    assert found.installed("deepspeed", ">=0.16,<0.17") == Unknown(frozenset((needs,)))
    assert found.installed("torch", "present") is False


def test_without_an_environment_nothing_is_known() -> None:
    found = FactScope({}, None, RULES)
    assert found.in_range("deepspeed", RANGE) == "unknown"
    assert found.package("deepspeed") is None
    assert found.variable("A") == Unknown(frozenset(("env A",)))


def test_variables() -> None:
    def variable(variables: dict[str, str] | None, *, complete: bool) -> object:
        environment = Environment("e", {}, complete=False, variables=variables, variables_complete=complete)
        return FactScope({}, environment, RULES).variable("A")

    unknown = Unknown(frozenset(("env A",)))
    assert variable({"A": "1"}, complete=False) == "1"
    assert variable({}, complete=True) is None
    assert variable({}, complete=False) == unknown
    assert variable(None, complete=True) == unknown


@pytest.mark.parametrize(
    ("origin", "declared"),
    [
        ("set", True),
        ("script", True),
        ("configuration", True),
        ("declared", True),
        ("installed", True),
        ("measured", True),
        ("model", True),
        ("derived", False),
        ("reader-default", False),
        ("library-default", False),
    ],
)
def test_what_the_machine_says_counts_as_declared(origin: str, declared: bool) -> None:  # noqa: FBT001
    fact = Fact("hardware.compute_capability", 7.0, origin)
    assert FactScope({fact.name: fact}, None, RULES).stated(fact.name) is declared
    assert FactScope({}, None, RULES).declared(fact.name) is False


def test_functions_of_expressions() -> None:
    found = scope(deepspeed="0.16.4")
    assert found.installed("deepspeed", ">=0.16") is True
    assert found.installed("deepspeed", "absent") is False
    assert found.installed("torch", "present") == Unknown(frozenset(("version of torch",)))
    assert found.version_in("12.4", ">=12.1") is True
    assert isinstance(found.version_in("12.1rc1", ">=12.1"), Unknown)
    assert found.look_up("t", ("a",)) == 1
    assert found.look_up("t", ("b",)) == Unknown(frozenset(("t[b]",)))


def test_a_trait_of_a_program_that_nobody_knows_is_told_by_its_name() -> None:
    assert scope().value("program.passes_labels") == Unknown(frozenset({"training.framework"}))
    known = scope({"training.framework": "accelerate"})
    assert known.value("program.passes_labels") == Unknown(frozenset({"program.passes_labels"}))
    assert scope().value("training.peft") == Unknown(frozenset({"training.peft"}))


def test_a_trait_is_declared_once_it_is_known() -> None:
    where = (Source("f"),)
    facts = {
        "program.upcasts_unquantised": Fact("program.upcasts_unquantised", True, "reader-default", where),
        "training.packing": Fact("training.packing", True, "reader-default", where),
    }
    found = FactScope(facts, None, RULES)
    assert found.declared("program.upcasts_unquantised") is True
    assert found.declared("program.keeps_graph") is False
    assert found.declared("training.packing") is True
    assert found.stated("training.packing") is False


def test_while_defaults_are_added_none_of_them_counts() -> None:
    """Which comes first is nobody's business: a row would ask of another one that may come later."""
    facts = {
        "training.packing": Fact("training.packing", True, "reader-default"),
        "training.zero_stage": Fact("training.zero_stage", 3, "configuration"),
    }
    found = FactScope(facts, None, RULES, growing=True)
    assert found.declared("training.packing") is False
    assert found.declared("training.zero_stage") is True


def test_the_program_a_file_is_for_is_declared() -> None:
    framework = Fact("training.framework", "llamafactory", "derived", (Source("f"),), "the program this file is for")
    assert FactScope({framework.name: framework}, None, RULES).declared(framework.name) is True
    assert FactScope({}, None, RULES).declared(framework.name) is False
