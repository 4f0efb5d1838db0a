"""Policies: what they hold, and errors that name file, line, key and remedy."""

from __future__ import annotations

import os
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compatcheck.checking.policy import read_policy
from compatcheck.core.errors import EXIT_USAGE, UsageError
from tests.effort import at_most

FULL = """\
fail-on = "5GiB"
select = ["deepspeed/*"]
ignore = "torch/*"
strict = true
rules = ["our-rules"]

[runs.actor]
lock = "uv.lock"
paths = ["configs/a.yaml"]
training = "args.yaml"
model = "meta-llama/Llama-3.1-70B"
gpu = "8xH100-80GB"
nodes = 4
driver = "550.54.15"
env-file = ".env"

[runs.actor.set]
training.use_reentrant = false
"training.zero_stage" = 3

[[waivers]]
rule = "deepspeed/zero3-*"
package = "deepspeed<0.16.8"
reason = "pinned"
expires = 2027-01-31
until = "deepspeed>=0.16.8"
owner = "infra"

[[waivers]]
# the second
rule = "torch/slow"
reason = "fine"
expires = "2027-02-01"
"""


def write(directory: Path, text: str, name: str = "compatcheck.toml") -> str:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_every_key_is_read(tmp_path) -> None:
    policy = read_policy(write(tmp_path, FULL))
    assert policy is not None
    assert (policy.fail_on, policy.select, policy.ignore, policy.strict) == (
        "5GiB",
        ("deepspeed/*",),
        ("torch/*",),
        True,
    )
    assert policy.rules == (str(tmp_path / "our-rules"),)
    (run,) = policy.runs
    assert run.paths == (str(tmp_path / "uv.lock"), str(tmp_path / "configs/a.yaml"))
    assert run.training == (str(tmp_path / "args.yaml"),)
    assert (run.model, run.gpu, run.nodes, run.driver) == ("meta-llama/Llama-3.1-70B", "8xH100-80GB", 4, "550.54.15")
    assert run.settings == ("training.use_reentrant=false", "training.zero_stage=3")
    assert run.env_file == str(tmp_path / ".env")
    assert run.sources["gpu"].line == 12
    assert run.sources["gpu"].key == "runs.actor.gpu"
    first, second = policy.waivers
    assert (first.rule, first.reason, first.owner, first.expires) == (
        "deepspeed/zero3-*",
        "pinned",
        "infra",
        date(2027, 1, 31),
    )
    assert first.until is not None
    assert first.until.package == "deepspeed"
    assert first.source.line == 21
    assert second.source.line == 29
    assert second.expires == date(2027, 2, 1)


def test_table_of_a_project_file(tmp_path) -> None:
    text = (
        '[project]\nname = "x"\n\n[tool.compatcheck]\nfail-on = "high"\n\n[[tool.compatcheck.waivers]]\nrule = "a/b"\n'
    )
    path = write(tmp_path, text, "pyproject.toml")
    with pytest.raises(UsageError) as caught:
        read_policy(path)
    assert caught.value.source is not None
    assert (caught.value.source.line, caught.value.source.key) == (7, "tool.compatcheck.waivers[0]")
    assert "no reason" in str(caught.value)


def test_project_file_without_a_table_is_no_policy(tmp_path) -> None:
    assert read_policy(write(tmp_path, '[project]\nname = "x"\n', "pyproject.toml")) is None


@pytest.mark.parametrize(
    ("text", "line", "key", "message", "hint"),
    [
        ('\nfail_on = "high"', 2, "fail_on", "unknown key 'fail_on'", "did you mean 'fail-on'?"),
        ('fail-on = "hihg"', 1, "fail-on", "'hihg' is not understood", "one of info"),
        ("fail-on = 3", 1, "fail-on", "3 does not fit", "expected a string"),
        ("strict = 1", 1, "strict", "1 does not fit", "true or false"),
        ("select = [1]", 1, "select", "[1] does not fit", "list of strings"),
        ("[runs.a]\n", 1, "runs.a", "a run without inputs", "give it one of paths"),
        ("[runs.a]\nmodels = 'x'", 2, "runs.a.models", "unknown key 'models'", "did you mean 'model'?"),
        ("[runs.a]\nnodes = 0", 2, "runs.a.nodes", "0 does not fit", "at least 1"),
        ("[runs.a]\nset = 3", 2, "runs.a.set", "3 does not fit", "a table of facts"),
        ("[runs.a.set]\nx.y = 2020-01-01", 1, "runs.a.set.x.y", "does not fit", "a string"),
        ("runs = 3", 1, "runs", "3 does not fit", "a table"),
        ("[waivers]\nrule = 'a/b'", 1, "waivers", "does not fit", "write [["),
        ("[[waivers]]\nreason = 'x'", 1, "waivers[0]", "names no rule", "add rule"),
        ("[[waivers]]\nrule = 'a/b'\n", 1, "waivers[0]", "has no reason", "add reason"),
        ("[[waivers]]\nrule = 'a/b'\nreason = '  '", 1, "waivers[0]", "has no reason", "add reason"),
        (
            "[[waivers]]\nrule='a/b'\nreason='x'\n[[waivers]]\nrule='a/b'\nreason='x'\nexpires = 'soon'",
            7,
            "waivers[1].expires",
            "'soon' does not fit",
            "2027-01-31",
        ),
        (
            "[[waivers]]\nrule='a/b'\nreason='x'\nuntil = 'deepspeed'",
            4,
            "waivers[0].until",
            "does not fit",
            "deepspeed>=0.16.8",
        ),
        ("[[waivers]]\nrule='a/b'\nreason='x'\nuntil = 'deepspeed>=x'", 4, "waivers[0].until", "", "deepspeed>=0.16.8"),
        ("[[waivers]]\nrule='a/b'\nreason='x'\nreasons='y'", 4, "waivers[0].reasons", "unknown key", "'reason'"),
        ("waivers = [{rule = 'a/b'}]", 1, "waivers[0]", "has no reason", "add reason"),
        ("select = [", 1, None, "not valid TOML", "--no-policy"),
        ("strict = true\nstrict = false", 2, None, "not valid TOML", "--no-policy"),
    ],
)
def test_mistakes_are_named(tmp_path, text, line, key, message, hint) -> None:
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        read_policy(path)
    error = caught.value
    assert error.exit_code == EXIT_USAGE
    assert error.source is not None
    assert (error.source.path, error.source.line, error.source.key) == (path, line, key)
    assert message in error.message
    assert hint in (error.hint or "")


def test_missing_file_is_a_usage_error(tmp_path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_policy(str(tmp_path / "none.toml"))


def test_paths_are_those_of_the_policy(tmp_path, monkeypatch) -> None:
    below = tmp_path / "below"
    below.mkdir()
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(below)
    write(tmp_path, "[runs.a]\nlock = 'uv.lock'\nmodel = 'model'")
    policy = read_policy(os.path.join("..", "compatcheck.toml"))
    assert policy is not None
    assert policy.runs[0].paths == (os.path.join("..", "uv.lock"),)
    assert policy.runs[0].model == os.path.join("..", "model")


@given(
    st.recursive(
        st.booleans() | st.integers(0, 9) | st.sampled_from(["x", "a/b"]),
        lambda inner: st.lists(inner, max_size=2),
        max_leaves=4,
    )
)
def test_any_value_is_a_policy_or_a_usage_error(tmp_path_factory, value) -> None:
    import json

    directory = tmp_path_factory.getbasetemp() / "policy"  # a policy in the base is above every test that follows
    directory.mkdir(exist_ok=True)
    for key in ("fail-on", "select", "strict", "rules", "runs", "waivers"):
        path = write(directory, f"{key} = {json.dumps(value)}")
        error = error_of(path)
        assert error is None or (error.source is not None and error.source.line == 1)


def error_of(path: str) -> UsageError | None:
    try:
        read_policy(path)
    except UsageError as error:
        return error
    return None


def test_lines_of_many_waivers_are_found_in_one_reading(tmp_path) -> None:
    count = 5000
    path = tmp_path / "compatcheck.toml"
    path.write_text('[[waivers]]\nrule = "a/b"\nreason = "x"\n' * count)
    with at_most(100):
        policy = read_policy(str(path))
    assert policy is not None
    assert [waiver.source.line for waiver in policy.waivers] == list(range(1, 3 * count, 3))


@pytest.mark.parametrize(
    "text",
    ['[[waivers]]\nrule = "a/b"\nreason = "x"\n' * 5001, "".join(f"[runs.r{number}]\n" for number in range(201))],
)
def test_a_policy_without_end_is_refused(tmp_path, text) -> None:
    (tmp_path / "compatcheck.toml").write_text(text)
    with pytest.raises(UsageError, match="more than"):
        read_policy(str(tmp_path / "compatcheck.toml"))
