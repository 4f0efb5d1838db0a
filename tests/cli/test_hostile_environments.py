"""What a file of an inspected environment is or states never stops the report of the others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.run_cli import run

SITE = "lib/python3.11/site-packages"
PLACES = {
    "pth": f"{SITE}/a.pth",
    "egg-info": f"{SITE}/a.egg-info",
    "egg-link": f"{SITE}/a.egg-link",
    "url": f"{SITE}/torch-2.3.0.dist-info/direct_url.json",
    "metadata": f"{SITE}/numpy-2.0.0.dist-info/METADATA",
    "version": f"{SITE}/torch/version.py",
    "configuration": "pyvenv.cfg",
}


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    metadata = tmp_path / SITE / "torch-2.3.0.dist-info/METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.3.0\n")
    for place in PLACES.values():
        (tmp_path / place).parent.mkdir(exist_ok=True)
    return tmp_path


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_a_pipe_is_not_waited_for(environment: Path, place: str) -> None:
    os.mkfifo(environment / place)
    ran = run("env", "--prefix", environment)
    wanted = 4 if place.endswith((".pth", ".cfg")) else 0  # it may name a directory of packages
    assert (ran.code, f"exit {wanted}" in ran.out) == (wanted, True)


@pytest.mark.parametrize(
    ("place", "content"),
    [
        ("pth", "./x\0y\n"),
        ("egg-link", "./x\0y\n"),
        ("configuration", "home = /x\0y\n"),
        ("url", '{"url": "file:///x%00y", "dir_info": {"editable": true}}'),
        ("version", f"__version__ = '{'1' * 5000}'\n"),
        ("version", f"__version__ = '2.3.0'\ncuda: Optional[str] = '{'1' * 5000}.4'\n"),
        ("version", "__version__ = '2.3.0'\ncuda: Optional[str] = '².4'\n"),
        ("metadata", f"Metadata-Version: 2.1\nName: numpy\nVersion: {'1' * 5000}\n"),
    ],
)
def test_a_value_that_no_program_writes_is_read_over(environment: Path, place: str, content: str) -> None:
    (environment / PLACES[place]).write_text(content)
    ran = run("env", "--prefix", environment)
    assert ran.code in {0, 1}
    assert f"exit {ran.code}" in ran.out


ZERO3 = ("--model", "llama-3-8b", "--set", "training.zero_stage=3", "--set", "training.param_dtype=bfloat16")
DEEPSPEED = "Metadata-Version: 2.1\nName: deepspeed\nVersion: 0.16.4\n"


@pytest.mark.parametrize(
    "kind", ["empty", "pipe", "tree without metadata", "tree without a version", "tree that is a file"]
)
def test_what_an_egg_link_names_is_unknown_and_not_absent(environment: Path, kind: str) -> None:
    link, tree = environment / SITE / "deepspeed.egg-link", environment / "tree"
    if kind == "pipe":
        os.mkfifo(link)
    else:
        link.write_text("" if kind == "empty" else f"{tree}\n.")
    if kind == "tree that is a file":
        tree.write_text("")
    elif kind.startswith("tree"):
        (tree / "deepspeed").mkdir(parents=True)
    if kind == "tree without a version":
        (tree / "deepspeed.egg-info").mkdir()
        (tree / "deepspeed.egg-info/PKG-INFO").write_text("Name: deepspeed\n")
    ran = run("env", "--prefix", environment, *ZERO3)
    assert (ran.code, "deepspeed" in ran.out) == (4, True)


def test_an_egg_link_to_a_tree_that_is_gone_names_nothing(environment: Path) -> None:
    (environment / SITE / "deepspeed.egg-link").write_text(f"{environment}/gone\n.")
    ran = run("env", "--prefix", environment, *ZERO3)
    assert (ran.code, "gone" in ran.out or "could not be read" in ran.out) == (0, True)


def test_one_tree_is_read_once_however_many_links_name_it(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from compatcheck.collectors.python import installed

    (environment / "tree/deepspeed.egg-info").mkdir(parents=True)
    (environment / "tree/deepspeed.egg-info/PKG-INFO").write_text(DEEPSPEED)
    for number in range(50):
        (environment / SITE / f"a{number}.egg-link").write_text(f"{environment}/tree\n.")
    read, real = [], installed.read_name_and_version
    monkeypatch.setattr(installed, "read_name_and_version", lambda path, files: read.append(path) or real(path, files))
    run("env", "--prefix", environment)
    assert read == [f"{environment}/tree/deepspeed.egg-info/PKG-INFO"]


@pytest.mark.parametrize(
    "text",
    [
        "home = /gone/bin\ninclude-system-site-packages = true\n",
        "include-system-site-packages = true\n",
        f"home = {'/a' * 30_000}\ninclude-system-site-packages = true\n",
        "#" * 70_000 + "\ninclude-system-site-packages = true\n",
        None,
    ],
)
def test_an_environment_whose_other_packages_are_not_found_is_not_whole(environment: Path, text: str | None) -> None:
    (environment / "pyvenv.cfg").write_text(text) if text is not None else os.mkfifo(environment / "pyvenv.cfg")
    ran = run("env", "--prefix", environment)
    assert (ran.code, "pyvenv.cfg" in ran.out) == (4, True)


def test_a_long_file_of_paths_is_not_read_whole(environment: Path) -> None:
    (environment / SITE / "a.pth").write_text(f"#{'c' * (1 << 20)}\n{environment}/tree\n")
    ran = run("env", "--prefix", environment)
    assert (ran.code, "a.pth" in ran.out) == (4, True)


def test_an_archive_on_the_path_is_read_by_its_name_or_said(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, said in (("deepspeed-0.16.4-py3.11.egg", "deepspeed 0.16.4"), ("spark.zip", "spark.zip")):
        (environment / name).write_bytes(b"PK")
        monkeypatch.setenv("PYTHONPATH", str(environment / name))
        assert said in " ".join(run("env", "--prefix", environment, *ZERO3, "-v").out.split())


def test_a_directory_of_no_python_is_passed_over(environment: Path) -> None:
    (environment / "lib/python3.²/site-packages").mkdir(parents=True)
    assert "exit 0" in run("env", "--prefix", environment).out


def test_endless_digits_of_variables_and_devices_are_refused(environment: Path) -> None:
    digits = "9" * 4400
    (environment / "run.env").write_text(
        f"PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:{digits},roundup_power2_divisions:[²:{digits}]\n"
    )
    assert run("env", "--prefix", environment, "--env-file", environment / "run.env").code in {0, 1}
    facts = environment / "facts.yaml"
    facts.write_text(f"compatcheck: 1\nhardware: {{gpu: A{digits}-80GB, gpus_per_node: 8, nodes: 4}}\n")
    assert run("env", "--prefix", environment, "--training", facts).code in {0, 1, 2, 4}
    assert run("env", "--prefix", environment, "--gpu", f"{digits}xH100-80GB").code == 2


def test_a_pipe_among_the_models_of_the_hub_is_not_waited_for(
    environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = environment / "hub/models--a--b/refs"
    refs.mkdir(parents=True)
    os.mkfifo(refs / "main")
    monkeypatch.setenv("HF_HUB_CACHE", str(environment / "hub"))
    ran = run("env", "--prefix", environment, "--model", "a/b")
    assert (ran.code, "a/b" in ran.out) == (4, True)


def test_endless_digits_of_a_version_end_no_command(environment: Path) -> None:
    import tarfile

    metadata = environment / SITE / "torch-2.3.0.dist-info/METADATA"
    metadata.write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {'1' * 5000}\n")
    (environment / "pyvenv.cfg").write_text("version = 3.11.0\n")
    with tarfile.open(environment / "image.tar", "w") as archive:
        archive.add(environment / "lib", "opt/v/lib")
        archive.add(environment / "pyvenv.cfg", "opt/v/pyvenv.cfg")
    assert run("image", environment / "image.tar", "--no-cache").code in {0, 1}
    for name, version in (("before", "1" * 5000), ("after", "2.5.0")):
        (environment / f"{name}.txt").write_text(f"torch=={version}\n")
    assert run("diff", environment / "before.txt", environment / "after.txt").code in {0, 1, 4}


def test_a_pipe_is_no_side_of_a_comparison(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    ran = run("diff", tmp_path / "pipe", tmp_path / "pipe")
    assert (ran.code, "is not a regular file" in ran.err) == (4, True)


def test_a_layer_with_half_a_surrogate_is_refused(tmp_path: Path) -> None:
    import io
    import tarfile

    with tarfile.open(tmp_path / "image.tar", "w") as archive:
        for name, data in (("manifest.json", b'[{"Config":"c.json","Layers":["\\ud800"]}]'), ("c.json", b"{}")):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    assert run("image", tmp_path / "image.tar").code == 4


def test_a_key_of_thousands_of_levels_costs_what_its_length_does(tmp_path: Path) -> None:
    import tracemalloc

    path = tmp_path / "ds.json"
    path.write_text('{"zero_optimization": {"stage": 3}, "' + ".".join("a" * 20_000) + '": 1}')
    run("check", path)  # what is compiled and imported once
    tracemalloc.start()
    run("check", path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 32 * 2**20


def test_short_memory_is_an_error(tmp_path: Path, monkeypatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("compatcheck.cli.__main__._run_plain", fail)
    ran = run("check", tmp_path)
    assert (ran.code, "memory is short" in ran.err, "Traceback" in ran.err) == (4, True, False)
