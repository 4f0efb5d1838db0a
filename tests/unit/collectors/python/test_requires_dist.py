"""The installed distribution's own Requires-Dist wins over our pin data."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from compatcheck.collectors.python.requires_dist import read_own_requirements
from compatcheck.core.environment import Environment, Package
from compatcheck.core.facts import Fact
from compatcheck.core.source import Source
from compatcheck.core.versions import compile_specifier
from compatcheck.matching.decision import decide
from compatcheck.resolution.scope import FactScope
from compatcheck.rules.database import RuleSet
from compatcheck.rules.locate import open_rules

RULE = "openrlhf/pins-deepspeed-that-keeps-zero3-params"
RUN = {
    "training.zero_stage": 3,
    "training.gradient_checkpointing": True,
    "training.use_reentrant": False,
    "hardware.world_size": 8,
    "hardware.single_rank": False,
}


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return open_rules()


def environment(folder: Path, requires: list[str], name: str = "openrlhf", version: str = "0.6.1") -> Environment:
    path = folder / f"{name}-{version}.dist-info"
    path.mkdir(parents=True)
    lines = [
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}",
        *(f"Requires-Dist: {line}" for line in requires),
    ]
    (path / "METADATA").write_text("\n".join(lines) + "\n\nRequires-Dist: deepspeed==0.16.4\n", encoding="utf-8")
    package = Package(name, version, Source(str(path)))
    return Environment(str(folder), {name: package}, complete=True)


def scope(environment: Environment, rules: RuleSet) -> FactScope:
    return FactScope({name: Fact(name, value, "set") for name, value in RUN.items()}, environment, rules)


@pytest.mark.parametrize(
    ("requires", "status"),
    [
        (["deepspeed==0.16.9"], "silent"),
        (["deepspeed>=0.16.8", "torch"], "silent"),
        (["deepspeed==99.1"], "silent"),
        (["torch", "ray"], "silent"),
        (["DeepSpeed (==0.16.4)", "torch"], "affected"),
        (["deepspeed>=0.15"], "affected"),
        (["deepspeed"], "affected"),
        (['deepspeed==0.16.4; extra == "train"', 'deepspeed==0.16.9; extra != "train"'], "affected"),
        ([], "affected"),
        (["deepspeed===="], "affected"),
    ],
)
def test_metadata_that_excludes_our_pin_wins(rules: RuleSet, tmp_path: Path, requires: list[str], status: str) -> None:
    rule = rules.find(RULE)
    assert rule is not None
    assert decide(rule, scope(environment(tmp_path, requires), rules)).status == status


def test_a_torch_built_for_another_triton_is_no_mismatch(rules: RuleSet, tmp_path: Path) -> None:
    rule = rules.find("torch/triton-of-another-release")
    assert rule is not None
    for triton, status in (("3.3.1", "silent"), ("3.2.0", "affected")):
        built = environment(tmp_path / status, [f"triton=={triton}; platform_system == 'Linux'"], "torch", "2.6.0")
        packages = {**built.packages, "triton": Package("triton", "3.3.1", Source("triton"))}
        facts = {"training.compile": Fact("training.compile", value=True, origin="set")}
        facts["runtime.torch_build"] = Fact("runtime.torch_build", "cuda", "installed")
        found = FactScope(facts, built._replace(packages=packages), rules)
        assert decide(rule, found).status == status


def test_the_origin_names_the_distribution(rules: RuleSet, tmp_path: Path) -> None:
    own = scope(environment(tmp_path, ["deepspeed==0.16.9"]), rules).own_requirement("openrlhf", "deepspeed")
    assert own is not None
    assert (own.value, str(own.sources[0])) == ("==0.16.9", "METADATA of openrlhf 0.6.1")


def test_what_is_not_installed_is_not_read(rules: RuleSet, tmp_path: Path) -> None:
    locked = environment(tmp_path, ["deepspeed==0.16.9"])._replace(complete=False)
    bounds = compile_specifier(">=0.16.2,<0.16.8")
    assert not scope(locked, rules).metadata_refutes("openrlhf", "deepspeed", bounds)
    assert read_own_requirements(Package("x", "1", Source("requirements.txt")), "deepspeed") is None
    assert read_own_requirements(Package("x", "1", Source(str(tmp_path / "x-1.dist-info"))), "deepspeed") is None


def test_an_environment_without_such_a_rule_reads_no_requirement(tmp_path: Path) -> None:
    environment(tmp_path / "lib/python3.11/site-packages", ["deepspeed==0.16.9"], "deepspeed", "0.16.4")
    script = (
        "import sys; from compatcheck.cli.__main__ import main\n"
        f"try: main(['env', '--prefix', {str(tmp_path)!r}])\n"
        "except SystemExit as end: assert end.code in (0, None), end\n"
        "sys.exit('compatcheck.collectors.python.requires_dist' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
