"""What the measuring commands refuse, and what they say before they measure anything."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from compatcheck.cli.measuring.progress import Progress
from compatcheck.core.process import Completed
from compatcheck.lab.environments.choice import EnvironmentChoice
from compatcheck.lab.environments.installer import UnbuildableError, explain_failure
from compatcheck.lab.measurement import Measurement
from compatcheck.lab.probes.probe import find_probe, probe_names
from compatcheck.lab.probes.runner import Task, make_task
from compatcheck.lab.settings import Settings
from compatcheck.lab.sweep import find_varying
from tests.cli.run_cli import run

WIDTH = 80


class Unbuildable:
    """Overlays of which none can be built."""

    class installer:  # noqa: N801 (an attribute)
        name = "uv"

    def open(self, *_: object, **__: object) -> None:
        message = "No solution found"
        raise UnbuildableError(message)


@pytest.fixture(autouse=True)
def silent_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that knows of nothing new."""
    monkeypatch.setattr("compatcheck.lab.releases.fetch_releases", lambda _: ())


@pytest.fixture
def unbuildable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compatcheck.lab.environments.choice.EnvironmentChoice.overlays", lambda _: Unbuildable())


def narrow(text: str) -> bool:
    """Tell whether text keeps to 80 columns but for words that are longer than a line has room for."""
    return all(len(line) <= WIDTH or len(line.split()) == 1 for line in text.splitlines())


BISECT = ("bisect", "zero3_release", "--package", "deepspeed")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bisect", "zero3_release", "--package", "transformers"), "probe zero3_release does not use transformers"),
        ((*BISECT, "--good", "0.16.0", "--bad", "0.16.0"), "--good and --bad are both 0.16.0"),
        ((*BISECT, "--versions", ""), "--versions is empty"),
        ((*BISECT, "--versions", ">=0.17", "--good", "0.16.8"), "0.16.8 does not lie in --versions >=0.17"),
        ((*BISECT, "--param", "layers=4,6"), "--param layers has 2 values, and one is wanted here"),
        (("sweep", "zero3_release", "--package", "deepspeed", "--versions", " "), "--versions is empty"),
        (
            ("confirm", "deepspeed/zero3-params-kept-in-backward", "--param", "layers=4,6"),
            "--param layers has 2 values",
        ),
        (
            ("confirm", "accelerate/outputs-cast-to-float32", "--param", "keep_fp32_outputs=true"),
            "what tells the suspect",
        ),
        (
            ("confirm", "deepspeed/zero3-params-kept-in-backward", "--baseline", "0.16.3"),
            "is about deepspeed 0.16.3 as well",
        ),
        (("sweep", "masks", "--package", "transformers", "--export", "all.txt"), "--export all.txt ends neither in"),
        (("probe", "run", "sdpa_gqa*", "--backend", "fake"), "none of these probes runs on fake"),
        (("probe", "run", "masks", "kv_cache", "--param", "kv_cache.batchh=1"), "no probe here has a parameter"),
        (("confirm", "accelerate/outputs-cast-to-float32", "--param", "of=keep"), "cannot be keep"),
        (("probe", "show", "masks", "--script", "--param", "layers=4,6"), "--param layers has 2 values"),
        (("probe", "run", "masks", "--param", "mask=padded"), "parameter 'mask' of probe masks cannot be padded"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, ...], message: str) -> None:
    ran = run(*arguments, *(("--dry-run",) if arguments[0] != "probe" else ()))
    assert ran.code == 2
    assert message in ran.err


@pytest.mark.parametrize("text", ["foo bar", "==", "transformers=4"])
def test_what_is_no_requirement_is_refused(text: str) -> None:
    choice = EnvironmentChoice(sys.executable, None, (text,), None)
    with pytest.raises(Exception, match="is no requirement") as error:
        choice.overlays()
    assert error.value.hint == "as --with transformers==4.57.6"  # type: ignore[attr-defined]


@pytest.mark.usefixtures("unbuildable")
def test_an_environment_that_cannot_be_built_is_a_measurement_with_a_reason() -> None:
    ran = run("probe", "run", "masks", "--with", "transformers==99.1", "--no-store")
    assert ran.code == 3
    assert "skipped: failed" in ran.out
    assert "could not be installed: No solution found" in ran.out
    assert "transformers 99.1" in ran.out


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("error: No solution found\n  cause: there is none\n", "No solution found cause: there is none"),
        ("ERROR: No version of x==9 (from versions: 1, 2)\nERROR: None", "No version of x==9 ERROR: None"),
    ],
)
def test_an_installers_own_error_is_not_called_one_twice(said: str, told: str) -> None:
    assert explain_failure(Completed(said, 1, None)) == told


@pytest.mark.parametrize("name", probe_names())
def test_the_page_of_a_probe_fits_eighty_columns(name: str) -> None:
    ran = run("probe", "show", name)
    assert ran.code == 0
    assert narrow(ran.out)


def test_the_page_of_a_probe_has_its_choices() -> None:
    out = run("probe", "show", "masks").out
    assert "  mask=none  (none, ones, padding)\n" in out
    assert "  batch=2\n" in out
    assert "  use_cache=false\n" in out


def test_lists_and_plans_fit_eighty_columns() -> None:
    for arguments in (
        ("probe", "list"),
        ("bisect", "masks", "--package", "transformers", "--dry-run"),
        ("sweep", "masks", "--package", "transformers", "--dry-run"),
        ("confirm", "deepspeed/zero3-params-kept-in-backward", "--dry-run"),
    ):
        ran = run(*arguments)
        assert ran.code == 0, ran.err
        assert narrow(ran.out), arguments


def test_a_plan_to_confirm_shows_both_sides_and_what_differs() -> None:
    suspect, baseline = run("confirm", "accelerate/outputs-cast-to-float32", "--dry-run").out.splitlines()[1:]
    assert suspect.startswith("  suspect   accelerate ")
    assert suspect.endswith("  keep_fp32_outputs=true")
    assert baseline.endswith("  keep_fp32_outputs=false")


def test_progress_shows_the_parameters_that_differ(capsys: pytest.CaptureFixture[str]) -> None:
    probe = find_probe("masks")
    tasks = [make_task(probe, {"mask": mask}) for mask in ("none", "padding")]
    progress = Progress(2, quiet=False, varying=find_varying(tasks))
    measurement: dict[str, Any] = {
        "versions": {},
        "device": "a CPU",
        "status": "ok",
        "backend": "cpu",
        "accounting": "-",
    }
    for task in (*tasks, tasks[0]):
        progress("4.57.6", Measurement(probe="masks", probe_hash="0", parameters=task.parameters, **measurement))
    lines = capsys.readouterr().err.splitlines()
    assert lines[1:] == ["[2/2, about 0 s left] 4.57.6 masks mask=padding: ok", "[3] 4.57.6 masks mask=none: ok"]


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_a_script_without_its_package_says_what_to_install(backend: str) -> None:
    script = run("probe", "show", "masks", "--script", "--backend", backend).out
    # An interpreter without site-packages has no torch.
    done = subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "torch is not installed here: pip install torch\n"
    assert done.stdout == ""


class Unchanging:
    """A laboratory in which every release of every package measures the same."""

    def __init__(self, settings: Settings, package: str) -> None:
        self.settings, self.package = settings, package

    def measure_all(self, wanted: Mapping[str, list[Task]]) -> Iterator[tuple[str, list[Measurement]]]:
        for version, tasks in wanted.items():
            yield version, [self._measure(version, task) for task in tasks]

    def _measure(self, version: str, task: Task) -> Measurement:
        return Measurement(
            probe=task.probe.name,
            probe_hash=task.hash,
            backend=task.backend,
            accounting=task.accounting,
            parameters=task.parameters,
            versions={self.package: version},
            device="a CPU",
            status="ok",
            results={"bytes_per_layer": 1e9, "mask_bytes": 1e9, "alive_after_backward_bytes": 1e9},
        )


@pytest.fixture
def unchanging(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    seen: list[Settings] = []

    def open_laboratory(settings: Settings, package: str, *_: object, **__: object) -> Unchanging:
        seen.append(settings)
        return Unchanging(settings, package)

    for module in ("bisect", "sweep"):
        monkeypatch.setattr(f"compatcheck.cli.measuring.{module}.open_laboratory", open_laboratory)
    return seen


def test_a_sweep_without_a_growth_says_that_it_drafts_nothing(unchanging: list[Settings]) -> None:
    ran = run("sweep", "masks", "--package", "transformers", "--versions", ">=5.22", "--drafts", "drafts", "-q")
    assert ran.code == 0, ran.err
    assert ran.err == "no draft was written: no number grew\n"
    assert len(unchanging) == 1


def test_what_releases_are_measured_with_reaches_the_laboratory(unchanging: list[Settings]) -> None:
    ran = run(
        *(*BISECT, "--versions", ">=0.19", "--with", "x==1", "--timeout", "7", "--no-store", "--fresh", "--jobs", "3"),
        *("--exclude-newer", "never", "--installer", "pip", "--torch", "2.13.0+cpu", "--quiet", "--format", "markdown"),
    )
    assert ran.code == 1, ran.err
    (settings,) = unchanging
    assert settings.environment == (None, "2.13.0+cpu", ("x==1",), "pip")
    assert settings[4:] == ("never", None, (), 7.0, True, True, True, 3)
    assert "no change found" in ran.out
    assert "Memory by phase" not in ran.out


@pytest.mark.usefixtures("unbuildable")
def test_a_confirmation_that_cannot_be_built_decides_nothing() -> None:
    ran = run("confirm", "accelerate/outputs-cast-to-float32", "--no-store", "--quiet", "--exclude-newer", "never")
    assert ran.code == 3
    assert "inconclusive" in ran.out
    assert "could not be installed: No solution found" in " ".join(ran.out.split())


@pytest.mark.usefixtures("unbuildable")
def test_a_parameter_may_be_for_one_of_several_probes() -> None:
    ran = run(
        "probe",
        "run",
        "masks",
        "kv_cache",
        "--param",
        "kv_cache.batch=3",
        "--with",
        "x==1",
        "--no-store",
        "--format",
        "json",
    )
    assert ran.code == 3, ran.err
    masks, cache = json.loads(ran.out)
    assert (masks["parameters"]["batch"], cache["parameters"]["batch"]) == (2, 3)


@pytest.mark.usefixtures("unbuildable")
def test_a_pattern_takes_only_probes_that_have_the_back_end() -> None:
    ran = run(
        "probe", "run", "*_cache", "sdpa_gqa*", "--backend", "fake", "--with", "x==1", "--no-store", "--format", "json"
    )
    assert ran.code == 3, ran.err
    assert {one["probe"] for one in json.loads(ran.out)} == {"kv_cache"}
