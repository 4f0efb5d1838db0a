"""Valid inputs of every command for `campaign.py`: a small tree of files each, and the arguments that read it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).parents[2]
_LARGEST = 48 * 1024
_SITE = "lib/python3.11/site-packages"
_DIFF_ID = b"@diff_id@"
REPORTS = ("text", "json", "sarif", "junit", "markdown", "github", "html")
SHORT = ("text", "json", "markdown")


class Seed(NamedTuple):
    """One valid input of a command, which is run in the directory of its files."""

    arguments: tuple[str, ...]
    files: Mapping[str, bytes]
    choices: tuple[tuple[str, ...], ...] = ((),)
    """Further arguments, of which each run takes one."""
    archive: str | None = None
    """``docker``, or ``docker.gz`` with a compressed layer: then the files are laid into ``image.tar``."""


def pack_image(files: Mapping[str, bytes], form: str) -> dict[str, bytes]:
    """Lay files into a docker archive; ``manifest.json`` and ``config.json`` stand beside its one layer."""
    layer = _tar({name: data for name, data in files.items() if "/" in name})
    digest = hashlib.sha256(layer).hexdigest().encode()
    members = {name: data.replace(_DIFF_ID, digest) for name, data in files.items() if "/" not in name}
    return {
        "image.tar": _tar(
            {**members, "a/layer.tar": gzip.compress(layer, 1, mtime=0) if form.endswith("gz") else layer}
        )
    }


def _tar(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def _tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.stat().st_size <= _LARGEST
    }


@cache
def _trees() -> tuple[dict[str, bytes], ...]:
    folders = [*sorted((ROOT / "fixtures/cases").iterdir()), *sorted((ROOT / "fixtures/environments").iterdir())]
    folders += [*sorted((ROOT / "fixtures/scripts").iterdir()), ROOT / "fixtures/configs/project"]
    policy = (ROOT / "fixtures/fuzz/policy/compatcheck.toml").read_bytes()
    found = [tree for folder in folders if folder.is_dir() and (tree := _tree(folder))]
    return (*found, {**found[0], "compatcheck.toml": policy})


@cache
def _single() -> tuple[tuple[str, bytes], ...]:
    places = [*(ROOT / "fixtures/configs").rglob("*"), *(ROOT / "fixtures/environments").rglob("*")]
    places += [*(ROOT / "fixtures/fuzz").rglob("*"), *(ROOT / "fixtures/cases").rglob("*")]
    places += [*(ROOT / "fixtures/programs").iterdir(), *(ROOT / "fixtures/scripts").rglob("*")]
    return tuple(
        (path.name, path.read_bytes()) for path in sorted(places) if path.is_file() and path.stat().st_size <= _LARGEST
    )


def _over_files(command: str, *choices: tuple[str, ...]) -> list[Seed]:
    single = [Seed((command, name), {name: data}, choices) for name, data in _single()]
    return [*single, *(Seed((command, "."), tree, choices) for tree in _trees() for _ in range(4))]


_MESSAGE = """\
torch==2.4.0 deepspeed 0.16.4 --model_name_or_path {model} per_device_train_batch_size=4 max_seq_length: 4096
Traceback (most recent call last):
  File "/a/transformers/models/llama/modeling_llama.py", line 1, in forward
    logits = torch.empty((4, 4096, 32000), dtype=torch.float32)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {size}. GPU 0 has a total capacity of 79.15 GiB of which 1.94 GiB \
is free. Process 3 has 77.20 GiB memory in use. Of the allocated memory 75.05 GiB is allocated by PyTorch, and 1.11 GiB is \
reserved by PyTorch but unallocated.
"""


def _logs() -> list[bytes]:
    told = (
        ("2.32 GiB", "meta-llama/Llama-2-7b-hf"),
        ("20.00 MiB", "Qwen/Qwen2.5-7B"),
        ("1.95 GiB", "Qwen/Qwen2.5-32B"),
    )
    return [
        *(path.read_bytes() for path in sorted((ROOT / "fixtures/fuzz").glob("[am]*/log.txt"))),
        (ROOT / "fixtures/guides/train.log").read_bytes(),
        *(path.read_bytes() for path in sorted((ROOT / "fixtures/fuzz/reports").iterdir())),
        *(_MESSAGE.format(size=size, model=model).encode() for size, model in told),
    ]


def _distribution(name: str, version: str, requires: str = "", **more: str) -> dict[str, bytes]:
    folder = f"{_SITE}/{name}-{version}.dist-info"
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}\nText\n",
        "RECORD": f"{name}/__init__.py,sha256=a,1\n{name}/version.py,,\n{name}-{version}.dist-info/RECORD,,\n",
        "INSTALLER": "pip\n",
        "WHEEL": "Wheel-Version: 1.0\nTag: cp311-cp311-linux_x86_64\n",
        **more,
    }
    return {f"{folder}/{file}": text.encode() for file, text in files.items()}


@cache
def environment() -> dict[str, bytes]:
    """Make the files of an environment, each kind of them once."""
    url = {
        "url": "https://u:p@h/deepspeed.git",
        "vcs_info": {"vcs": "git", "commit_id": "ab", "requested_revision": "v0.16.4"},
    }
    local = {"url": "file:///src/trl", "dir_info": {"editable": True}}
    conda = {
        "name": "pytorch",
        "version": "2.5.0",
        "build": "cuda124",
        "files": [f"{_SITE}/torch-2.5.0.dist-info/METADATA"],
    }
    texts = {
        "pyvenv.cfg": "home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11.7\n",
        "conda-meta/pytorch-2.5.0-py3.11_cuda12.4_cudnn9_0.json": json.dumps(conda),
        "conda-meta/history": "==> 2025 <==\n+pytorch\n",
        f"{_SITE}/torch/version.py": "__version__ = '2.5.0+cu124'\ndebug = False\ncuda: Optional[str] = '12.4'\nhip = None\n",
        f"{_SITE}/deepspeed/git_version_info_installed.py": "version='0.16.4'\ntorch_info={'version': '2.5'}\n",
        f"{_SITE}/a.pth": "/src/trl\nimport sys; sys.path.insert(0, 'x')\n../x\n",
        f"{_SITE}/__editable__.trl-0.9.0.pth": "/src/trl\n",
        f"{_SITE}/old.egg-link": "/src/old\n../\n",
        f"{_SITE}/peft-0.13.0-py3.11.egg-info/PKG-INFO": "Metadata-Version: 1.1\nName: peft\nVersion: 0.13.0\n",
        f"{_SITE}/peft-0.13.0-py3.11.egg-info/requires.txt": "torch>=1.13\n\n[test]\npytest\n",
        "opt/x": "",
        "var/lib/dpkg/status": (ROOT / "fixtures/fuzz/dpkg/status").read_text(),
    }
    return {
        **{name: text.encode() for name, text in texts.items()},
        "var/lib/rpm/rpmdb.sqlite": gzip.decompress((ROOT / "fixtures/images/rpm/rpmdb.sqlite.gz").read_bytes())[
            :_LARGEST
        ],
        **_distribution("torch", "2.5.0", 'Requires-Dist: triton==3.1.0; platform_system == "Linux"\n'),
        **_distribution("deepspeed", "0.16.4", "Requires-Dist: torch\n", **{"direct_url.json": json.dumps(url)}),
        **_distribution("transformers", "4.46.0", "Requires-Dist: tokenizers<0.21,>=0.20\n"),
        **_distribution("trl", "0.9.0", **{"direct_url.json": json.dumps(local)}),
        **_distribution("nvidia_cudnn_cu12", "9.1.0.70"),
        **_distribution("vllm", "0.6.3"),
    }


def _env() -> list[Seed]:
    files = {f"venv/{name}": data for name, data in environment().items() if not name.startswith(("var/", "opt/"))}
    formats = tuple(("--format", name) for name in REPORTS)
    run = {
        "run.env": b"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:64\n",
        **dict(list(_trees()[1].items())),
    }
    training = [name for name in run if name.endswith((".json", ".yaml"))]
    options = tuple(part for name in training for part in ("--training", name))
    return [
        Seed(("env", "--prefix", "venv"), files, ((), ("-vv",), *formats)),
        Seed(("env", "--prefix", "venv"), files, (("--gpu", "8xH100-80GB"), ("--driver", "550.54"))),
        Seed(("env", "--prefix", "venv", "--env-file", "run.env", *options), {**files, **run}, ((), ("--strict",))),
        Seed(("facts", "--prefix", "venv"), files, ((), ("--format", "yaml"))),
        Seed(("diff", "venv", f"venv/{_SITE}"), files),
    ]


def _image() -> list[Seed]:
    manifest = [{"Config": "config.json", "RepoTags": ["train:1"], "Layers": ["a/layer.tar"]}]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Env": ["PATH=/opt/venv/bin:/usr/bin", "NCCL_DEBUG=INFO"],
            "Entrypoint": ["/bin/run.sh"],
            "Cmd": ["python"],
        },
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + _DIFF_ID.decode()]},
        "history": [{"created_by": "RUN pip install torch==2.5.0"}],
    }
    tree = {
        **{name if name.startswith("var/") else f"opt/venv/{name}": data for name, data in environment().items()},
        "opt/venv/bin/python3.11": b"\x7fELF",
        "bin/run.sh": b'#!/bin/bash\nsource /opt/venv/bin/activate\nexec torchrun train.py "$@"\n',
        "etc/os-release": b"ID=ubuntu\nVERSION_ID=22.04\n",
    }
    documents = {"manifest.json": json.dumps(manifest).encode(), "config.json": json.dumps(config).encode()}
    formats = ((), ("--format", "json"), ("--no-cache",), ("--all",))
    return [
        Seed(("image", "image.tar"), {**documents, **tree}, formats, archive="docker"),
        Seed(("image", "image.tar", "--no-cache"), {**documents, **tree}, formats, archive="docker.gz"),
        Seed(("image", "root"), {f"root/{name}": data for name, data in tree.items()}, formats),
    ]


def _diff() -> list[Seed]:
    lists = [
        (name, data) for name, data in _single() if name.endswith((".txt", ".lock", ".toml", ".yml", "Dockerfile"))
    ]
    return [
        Seed(
            ("diff", f"a/{name}", f"b/{other}"),
            {f"a/{name}": data, f"b/{other}": content},
            tuple(("--format", one) for one in SHORT),
        )
        for (name, data), (other, content) in zip(lists, [*lists[1:], lists[0]], strict=True)
    ] + [Seed(("diff", f"a/{name}", f"b/{name}"), {f"a/{name}": data, f"b/{name}": data}) for name, data in lists]


def _oom() -> list[Seed]:
    case = _trees()[1]
    formats = tuple(("--format", one) for one in SHORT)
    return [Seed(("oom", "log.txt"), {"log.txt": log}, formats) for log in _logs()] + [
        Seed(("oom", "log.txt", "run"), {"log.txt": log, **{f"run/{name}": data for name, data in case.items()}})
        for log in _logs()
    ]


def _rules() -> list[Seed]:
    rules = sorted((ROOT / "rules").glob("[a-z]*/*.yaml"))[::3]
    return [
        Seed(
            ("rules", "lint", f"{path.parent.name}/{path.name}"), {f"{path.parent.name}/{path.name}": path.read_bytes()}
        )
        for path in rules
    ]


def _own_rules() -> list[Seed]:
    """Make runs under rules of one's own, which are as hostile as any input."""
    tree = _trees()[1]
    rules = sorted((ROOT / "rules/deepspeed").glob("*.yaml"))[:8]
    own = [{**tree, f"own/deepspeed/{path.name}": path.read_bytes()} for path in rules]
    return [Seed(("check", ".", "--rules", "own"), files) for files in own]


def _baselines() -> list[Seed]:
    report = (ROOT / "fixtures/fuzz/baseline/report.json").read_bytes()
    files = {"report.json": report, "requirements.txt": _PACKAGES}
    return 8 * [Seed(("check", "requirements.txt", "--baseline", "report.json"), files, ((), ("--format", "json")))]


def _fleet() -> list[Seed]:
    """Make comparisons of nodes: what a launcher wrote of all of them, and a directory with a file for each."""
    nodes = [path.read_bytes() for path in sorted((ROOT / "fixtures/fuzz/node_dump").iterdir())]
    files = {f"dumps/{number}.json": line for one in nodes for number, line in enumerate(one.splitlines(keepends=True))}
    formats = tuple(("--format", name) for name in SHORT)
    return [
        Seed(("fleet", "merge", "dumps"), files, formats),
        Seed(("fleet", "merge", "all.txt"), {"all.txt": nodes[0]}, formats),
        Seed(("fleet", "merge", "dumps", "--expect", "names"), {**files, "names": b"node-0\nnode-1\nnode-9\n"}),
        Seed(("check", "all.txt"), {"all.txt": nodes[0]}),
    ]


def _bulk() -> list[Seed]:
    inputs = {name: data for name, data in _single() if name.endswith((".txt", ".lock", ".toml", ".sh"))}
    names = "".join(f"{name}\n" for name in list(inputs)[:6]).encode()
    return [Seed(("bulk", "--jobs", "1", "--list", "names"), {"names": names, **dict(list(inputs.items())[:6])})]


def _evidence() -> list[Seed]:
    places = [*(ROOT / "fixtures/measurements").glob("*/*.json"), *(ROOT / "fixtures/measurements").glob("*/*.jsonl")]
    files = [(path.name, path.read_bytes()) for path in sorted(places) if path.stat().st_size <= _LARGEST]
    return [Seed(("evidence", "import", name), {name: data}) for name, data in files]


def _bare() -> list[Seed]:
    """Make runs without a command: a text of any name, and the start of a server."""
    servers = {name: (ROOT / "fixtures/programs" / name).read_bytes() for name in ("vllm-serve.sh", "sglang-server.sh")}
    return [Seed((name,), {name: log}) for log in _logs() for name in ("thread.md", "a.log", "b")] + [
        Seed((*command, name), {name: data})
        for name, data in servers.items()
        for command in ((), ("estimate", "--gpu", "8xH100-80GB"), ("estimate", "--suggest"), ("check",))
    ]


_TRAIN = "deepspeed --module openrlhf.cli.train_sft --pretrain meta-llama/Meta-Llama-3-8B --zero_stage 3 --bf16"
_PACKAGES = b"torch==2.5.1\ndeepspeed==0.16.4\ntransformers==4.46.3\nopenrlhf==0.5.2\n"


def _embedded() -> list[Seed]:
    """Make runs whose commands stand in files of other programs, scripts that read others, and files that compose."""
    cells = [
        {"cell_type": "code", "source": ["%pip install trl\n", f"!{_TRAIN}\n"]},
        {"cell_type": "code", "source": f"%%bash\n{_TRAIN}"},
    ]
    container = {"command": ["bash", "-c", _TRAIN], "args": ["x"], "env": [{"name": "STAGE", "value": "3"}]}
    held = [
        {"cell_type": "code", "source": ["x = 1\n", f"cmd = f'{_TRAIN} --lr {{x}}'\n"]},
        {"cell_type": "code", "source": ["!{cmd} | grep '{print $1}' \\\n", "  $x\n", "a = !{' '.join([cmd])}\n"]},
    ]
    editor = {"configurations": [{"module": "openrlhf.cli.train_sft", "args": ["--bf16", "${file}/a"], "cwd": "sub"}]}
    job = {
        "postCreateCommand": {"a": ["bash", "-c", _TRAIN], "b": _TRAIN},
        "program": "a.py",
        "parameters": {"lr": {"value": 1}},
    }
    task = {"run": f"set -e\n{_TRAIN}\n", "envs": {"MODEL": "a/b"}}
    trees = (
        {
            "Makefile": f"include other.mk\nPY ?= $(shell which python)\nARGS := --max_len 4096\nexport STAGE = 3\n"
            f"ifdef X\nARGS += --flash_attn\nendif\ndefine run\n{_TRAIN}\nendef\ntrain: a\n\t@{_TRAIN} $(ARGS) \\\n\t  --lr 1\n"
            "two:\n\t$(call f,1) $(PY) -m openrlhf.cli.train_sft --pretrain a/b\n",
            "other.mk": "MODEL = a/b\nf = cd $(1) &&\n",
        },
        {
            "justfile": f'set shell := [\'bash\']\nmodel := \'a/b\'\nlong := """\n{_TRAIN}\n"""\n'
            f"train n='8': dep\n    @{_TRAIN} --pretrain {{{{model}}}}\n"
        },
        {
            "job.yaml": json.dumps({"spec": {"containers": [container]}}),
            "task.yaml": f"run: |\n  {_TRAIN}\nsetup: pip install x\n",
        },
        {
            "sky.json": json.dumps(task),
            "compose.yaml": f"services:\n  a:\n    entrypoint: [deepspeed]\n    command: {_TRAIN[10:]}\n",
        },
        {"held.ipynb": json.dumps({"cells": held, "metadata": {"kernelspec": {"language": "python"}}}, indent=1)},
        {"kernel.ipynb": json.dumps({"cells": cells, "metadata": {"language_info": {"name": "bash"}}}, indent=1)},
        {
            "launch.json": json.dumps(editor, indent=1).replace("{", "{ // a", 1),
            ".devcontainer.json": json.dumps(job, indent=1).replace("{", "/* b */ {", 1),
        },
        {
            "Dockerfile": f'FROM python:3.11 AS a\nENV N=8 M="$N"\nWORKDIR /a\nRUN <<EOF\ncat > /run.sh <<X\n{_TRAIN}\nX\nEOF\n'
            f"RUN --mount=type=cache,target=/c python3 - <<EOF\nimport os\nos.system('{_TRAIN}')\nEOF\n"
            f'ONBUILD RUN {_TRAIN}\nFROM a AS b\nENTRYPOINT ["bash", "/run.sh"]\nCMD ["x"]\n',
            "crontab": f"0 1 * * * {_TRAIN}\n",
            "job.py": f"import sky\no = {{'bf16': 1}}\nsky.Task(run='{_TRAIN}')\nf(entry_point='train.py', h=o)\n",
        },
        {"run.ipynb": json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1)},
        {
            "train.sh": f"cd $(dirname $0)/sub\nsource ./env.sh && . ../more.sh a b\n"
            f"for s in 2 3; do {_TRAIN} $ARGS --max_len $s; done\n$PY train.py --x 1\n",
            "sub/env.sh": "export ARGS='--flash_attn' PY=$(which python)\ncd ..\n",
            "more.sh": 'set -- "$@" c\nARGS="$ARGS --lr $1"\n',
        },
        {
            "run.sh": "python -m verl.trainer.main_ppo --config-name base "
            "data.train_batch_size=64 +a.b=1 actor_rollout_ref.model.path=a/b\n",
            "config/base.yaml": "defaults:\n  - model: small\n  - _self_\n  - override hydra/launcher: x\n"
            "trainer: {n_gpus_per_node: 8, nnodes: '${oc.env:N,1}'}\n",
            "config/model/small.yaml": "# @package actor_rollout_ref.model\npath: a/b\nx: ${..y}\n",
        },
    )
    return [
        Seed(
            ("check", "."),
            {"requirements.txt": _PACKAGES, **{name: text.encode() for name, text in tree.items()}},
            ((), ("--format", "json"), ("--strict",)),
        )
        for tree in trees
    ]


COMMANDS: Mapping[str, Callable[[], list[Seed]]] = {
    "bare": _bare,
    "bulk": _bulk,
    "check": lambda: (
        _over_files("check", (), ("-vv",), *(("--format", name) for name in REPORTS), ("--strict",))
        + _own_rules()
        + _baselines()
    ),
    "diff": _diff,
    "embedded": _embedded,
    "env": _env,
    "estimate": lambda: _over_files(
        "estimate", (), ("-vv",), ("--format", "json"), ("--suggest",), ("--gpu", "8xH100-80GB"), ("--format", "html")
    ),
    "evidence": _evidence,
    "explain": lambda: [
        Seed(("explain", path.relative_to(ROOT / "rules").with_suffix("").as_posix(), *one.arguments[1:]), one.files)
        for one, path in zip(_over_files("explain"), 9 * sorted((ROOT / "rules").glob("[a-z]*/*.yaml")), strict=False)
    ],
    "facts": lambda: _over_files("facts", (), ("--format", "json"), ("--format", "yaml")),
    "fix": lambda: _over_files(
        "fix", *(("--offline", *more) for more in ((), ("--format", "json"), ("--apply",), ("--apply", "--unsafe")))
    ),
    "fleet": _fleet,
    "image": _image,
    "oom": _oom,
    "rules": _rules,
}
"""Command → its valid inputs."""
