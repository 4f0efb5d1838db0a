"""An index that is slow or answers garbage costs a bounded time and what it would have said, and that is said."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compatcheck.core.errors import InputError
from compatcheck.services import releases
from tests.cli.run_cli import Ran, run
from tests.faults.desk import COMMANDS, Desk, Done
from tests.faults.indexes import ANSWERS, Server, serve

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)  # connections that nobody waits for any more
SECONDS = 1.5
every_answer = pytest.mark.parametrize("answer", ANSWERS)


@pytest.fixture
def server(answer: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """An index that pip and uv are set up for, and short limits."""
    for name in ("UV_INDEX_URL", "UV_FIND_LINKS", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(releases, "TOTAL_SECONDS", SECONDS)
    monkeypatch.setattr(releases, "TIMEOUT_SECONDS", SECONDS)
    with serve(ANSWERS[answer]) as found:
        monkeypatch.setenv("PIP_INDEX_URL", found.address)
        monkeypatch.setenv("UV_DEFAULT_INDEX", found.address)
        monkeypatch.setenv("UV_HTTP_TIMEOUT", "1")
        monkeypatch.setenv("UV_HTTP_RETRIES", "0")
        yield found


def run_within(seconds: float, *arguments: object) -> Ran:
    began = time.monotonic()
    ran = run(*arguments)
    assert time.monotonic() - began < seconds
    return ran


@every_answer
def test_its_releases_are_unknown_and_why_is_said(server: Server) -> None:
    began = time.monotonic()
    with pytest.raises(InputError, match="peft: the package index") as caught:
        releases.fetch_releases("peft")
    assert time.monotonic() - began < SECONDS + 1
    assert server.asked == ["/simple/peft/"]
    assert "127.0.0.1" not in caught.value.message


@every_answer
def test_requirements_of_a_release_are_unknown(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel, archive = (f"peft-1.0{end}" for end in ("-py3-none-any.whl", ".tar.gz"))
    files = [releases.IndexFile(name, f"{server.address}/{name}", None, yanked=False) for name in (wheel, archive)]
    monkeypatch.setattr(releases, "list_files", lambda _: files)
    with pytest.raises(InputError, match=r"peft 1\.0: no file states its requirements"):
        releases.read_requirements("peft", "1.0")


@every_answer
def test_rules_stale_goes_on_with_what_the_database_knows(server: Server) -> None:
    known = run("rules", "stale", "peft/*", "--offline")
    ran = run_within(10 * SECONDS + 10, "rules", "stale", "peft/*")
    assert (ran.code, ran.out) == (known.code, known.out)
    assert "peft: only the database's own releases: peft: the package index" in ran.err
    assert server.asked


@every_answer
@pytest.mark.parametrize("command", ["sweep", "bisect"])
def test_sweep_and_bisect_measure_the_releases_that_are_known(
    server: Server, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = []

    def stop(_settings: object, _package: str, axis: object, **_: object) -> None:
        chosen.append(axis)
        raise InputError("measured")

    monkeypatch.setattr(f"compatcheck.cli.measuring.{command}.open_laboratory", stop)
    ran = run_within(2 * SECONDS + 5, command, "peft_lora_forward", "--package", "peft", "--versions", ">=0.17")
    assert "are not known: peft: the package index" in ran.err
    assert {"0.17.0", "0.18.1"} <= set(chosen[0].names)
    assert "99.0" not in chosen[0].names
    assert server.asked


@every_answer
def test_watch_looks_at_the_releases_that_are_known(server: Server) -> None:
    ran = run_within(2 * SECONDS + 5, "watch", "peft_lora_forward", "--package", "peft", "--dry-run")
    assert ran.code == 0, ran.err
    assert "are not known: peft: the package index" in " ".join(ran.err.split())
    assert "99.0" not in ran.out
    assert server.asked


@pytest.mark.skipif(shutil.which("uv") is None, reason="there is no uv")
@every_answer
def test_fix_plans_with_what_it_knows(server: Server, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.6.0\ndeepspeed==0.16.4\ntransformers==4.51.3\n")
    facts = "compatcheck: 1\nmodel: {from: llama-3-70b}\n"
    facts += "training: {zero_stage: 3, gradient_checkpointing: true, use_reentrant: false, param_dtype: bfloat16}\n"
    (tmp_path / "facts.yaml").write_text(facts)
    ran = run_within(120, "fix", tmp_path, "--no-policy")
    assert ran.code == 1, ran.err
    assert "-deepspeed==0.16.4\n+deepspeed==0.16.8\n" in ran.out
    assert "clears    deepspeed/zero3-params-kept-in-backward" in ran.out
    assert "not checked by a resolver" in ran.out
    assert server.asked


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["hangs", "drips", "a portal", "cut off", "bytes", "an error"])
@pytest.mark.parametrize("command", ["sweep", "bisect", "confirm", "probe run"])
def test_what_cannot_be_installed_is_a_result_that_says_so(
    desk: Desk, tmp_path: Path, server: Server, command: str
) -> None:
    index = dict.fromkeys(("PIP_INDEX_URL", "UV_DEFAULT_INDEX"), server.address)
    limits = {"UV_HTTP_TIMEOUT": "1", "UV_HTTP_RETRIES": "0", "UV_FIND_LINKS": None}
    done = desk.run(command, tmp_path / "garbage", **index, **limits)
    assert done.code == 3, done.err
    assert "could not be installed" in done.out + done.err
    assert "evidence" not in done.left or command == "probe run"
    assert any("leaky" in path or "helper" in path for path in server.asked)


@pytest.mark.slow
@pytest.mark.parametrize("answer", ["hangs"])
@pytest.mark.parametrize(
    "command", [name for name in COMMANDS if name not in {"sweep", "bisect", "confirm", "watch", "probe run"}]
)
def test_all_others_ask_none(
    desk: Desk, undisturbed: Callable[[str], Done], tmp_path: Path, server: Server, command: str
) -> None:
    index = dict.fromkeys(("PIP_INDEX_URL", "UV_DEFAULT_INDEX"), server.address)
    done = desk.run(command, tmp_path / "asking", **index, HTTP_PROXY=server.address, HTTPS_PROXY=server.address)
    assert done == undisturbed(command)
    assert server.asked == []
