"""What `compatcheck image` reads of a real image beside what syft reads, with every difference explained.

    python benchmarks/image_syft.py --work DIR --syft SYFT [--base ROOTFS] [--torch SITE_PACKAGES]

builds an image under DIR out of Debian's packages (debootstrap, as root) and real wheels, in layers that overwrite and
delete distributions, writes it with umoci and skopeo as a docker archive, an OCI archive and an OCI layout, reads all of
them and the root directory, and compares distributions with syft's. Needs debootstrap, umoci, skopeo and uv. Exits with 1
when two of our readings differ, or a difference from syft has no explanation. The syft on the package index (1.18.1)
reads no conda records; those are compared with the files of the root directory.

Conda itself is not installable from the package index; the records in the conda prefixes are written in its documented
format beside real wheels.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from cpu import run

from compatcheck.collectors.image.archive import open_images
from compatcheck.collectors.image.environments import read_image
from compatcheck.collectors.python.distributions import canonical_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from compatcheck.collectors.image.archive import Image

NAME = "train:1"
VENV = "opt/venv/lib/python3.11/site-packages"
CONDA = "opt/conda/lib/python3.12/site-packages"
TRAIN = "opt/conda/envs/train/lib/python3.10/site-packages"


class Found(NamedTuple):
    """One distribution or conda package."""

    folder: str
    """Directory its metadata lies in."""
    name: str
    version: str


def call(*command: str | Path) -> None:
    """Run a command, and stop when it fails."""
    subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)


def install(root: Path, folder: str, python: str, *requirements: str, installer: str | None = None) -> None:
    """Put wheels into a directory of the image, as uv does."""
    target = root / folder
    call(
        *("uv", "pip", "install", "-q", "--no-deps", "--upgrade", "--python-version", python, "--only-binary", ":all:"),
        *("--link-mode", "copy", "--target", target, *requirements),
    )
    shutil.rmtree(target / "bin", ignore_errors=True)
    if installer is not None:
        for path in target.glob("*.dist-info/INSTALLER"):
            path.write_text(f"{installer}\n")


def add_conda(root: Path, prefix: str, python: str, records: dict[str, str]) -> None:
    """Make a conda prefix: an interpreter by name, and one record for each package."""
    place = root / prefix
    library = place / "lib" / f"python{python}"
    library.mkdir(parents=True)
    (library / "os.py").touch()
    (place / "bin").mkdir()
    (place / "bin" / f"python{python}").write_bytes(b"\x7fELF" + b"\0" * 60)
    for name in ("python3", "python"):
        (place / "bin" / name).symlink_to(f"python{python}")
    (place / "conda-meta").mkdir()
    for name, version in {"python": f"{python}.4", **records}.items():
        record = {
            "name": name,
            "version": version,
            "build": "h1_0",
            "build_number": 0,
            "files": [],
            "subdir": "linux-64",
        }
        (place / "conda-meta" / f"{name}-{version}-h1_0.json").write_text(json.dumps(record))


def add_venv(root: Path, torch: Path | None) -> None:
    """Add a virtual environment of Debian's Python."""
    call("chroot", root, "python3", "-m", "venv", "--without-pip", "/opt/venv")
    install(root, VENV, "3.11", "packaging==24.0", "six==1.16.0", "attrs==23.2.0", "setuptools==75.8.0", "peft==0.14.0")
    if torch is not None:
        (metadata,) = torch.glob("torch-*.dist-info")
        shutil.copytree(metadata, root / VENV / metadata.name)
        (root / VENV / "torch").mkdir()
        shutil.copy(torch / "torch" / "version.py", root / VENV / "torch" / "version.py")


def add_prefixes(root: Path) -> None:
    """Add a conda prefix with an environment of its own, a cached package and a wheel that uv keeps."""
    add_conda(root, "opt/conda", "3.12", {"packaging": "24.2", "certifi": "2024.12.14"})
    install(root, CONDA, "3.12", "packaging==24.2", "certifi==2024.12.14", installer="conda")
    add_conda(root, "opt/conda/envs/train", "3.10", {"trl": "0.12.0", "cudnn": "9.3.0.75", "old": "1.0"})
    install(root, TRAIN, "3.10", "trl==0.12.0", installer="conda")
    install(root, "opt/conda/pkgs/certifi-2024.12.14-h1_0/site-packages", "3.12", "certifi==2024.12.14")
    install(root, "root/.cache/uv/archive-v0/abc", "3.11", "six==1.17.0")


def change(root: Path) -> None:
    """Overwrite a distribution, delete another, replace one of conda's, and drop a record: what later layers do."""
    for path in (root / VENV).glob("packaging*"):
        shutil.rmtree(path)
    install(root, VENV, "3.11", "packaging==25.0")
    for path in [*(root / VENV).glob("six*"), *(root / VENV).glob("__pycache__/six*")]:
        (shutil.rmtree if path.is_dir() else os.unlink)(path)
    shutil.rmtree(root / TRAIN)
    install(root, TRAIN, "3.10", "trl==0.13.0")
    (root / "opt/conda/envs/train/conda-meta/old-1.0-h1_0.json").unlink()


def build(work: Path, base: Path, torch: Path | None) -> Path:
    """Build the image in layers; returns its root directory."""
    layout, bundle = work / "layout", work / "bundle"
    for path in (layout, bundle):
        shutil.rmtree(path, ignore_errors=True)
    call("umoci", "init", "--layout", layout)
    call("umoci", "new", "--image", f"{layout}:train")
    call("umoci", "unpack", "--image", f"{layout}:train", bundle)
    root = bundle / "rootfs"
    layers: tuple[Callable[[], object], ...] = (
        lambda: call("cp", "-a", f"{base}/.", root),
        lambda: add_venv(root, torch),
        lambda: add_prefixes(root),
        lambda: change(root),
    )
    for add in layers:
        add()
        call("umoci", "repack", "--refresh-bundle", "--image", f"{layout}:train", bundle)
    call(
        *("umoci", "config", "--image", f"{layout}:train", "--config.env", "PATH=/opt/venv/bin:/usr/bin:/bin"),
        *("--config.env", "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "--config.cmd", "python"),
        *("--config.cmd", "train.py"),
    )
    for kind in ("docker", "oci"):
        (work / f"{kind}.tar").unlink(missing_ok=True)
        call("skopeo", "copy", "-q", f"oci:{layout}:train", f"{kind}-archive:{work}/{kind}.tar:{NAME}")
    return root


def read_ours(image: Image) -> tuple[set[Found], set[Found], str | None]:
    """Return distributions, conda packages, and the environment that is started."""
    reading = read_image(image, ())
    distributions, conda = set(), set()
    for entry in reading.environments:
        for package in entry.environment.packages.values():
            path = package.source.path.removeprefix(f"{image.name}:")
            distributions.add(Found(os.path.dirname(path), package.name, str(package.version)))
        for folder in entry.place.layout.conda_meta:
            for name in image.files.list_names(folder):
                package_name, version, _ = name.removesuffix(".json").rsplit("-", 2)
                conda.add(Found(folder, package_name, version))
    started = next((entry.place.name for entry in reading.environments if entry.is_started), None)
    return distributions, conda, started


def read_syft(syft: str, archive: Path, output: Path) -> set[Found]:
    """Return distributions as syft lists them."""
    command = [syft, "scan", f"docker-archive:{archive}", "-q", "-o", f"json={output}", "--override-default-catalogers"]
    done = run([*command, "python"], environ={**os.environ, "SYFT_CHECK_FOR_APP_UPDATE": "false"})
    if done.exit_code:
        sys.exit(done.output.decode(errors="replace"))
    print(f"syft: {done.cpu_seconds:.1f} s of CPU")
    distributions = set()
    for artifact in json.loads(output.read_text())["artifacts"]:
        for location in artifact["locations"]:
            folder, _, name = location["path"].rpartition("/")
            if artifact["type"] == "python" and location.get("annotations", {}).get("evidence") == "primary":
                above = folder if name.endswith((".egg-info", ".dist-info")) else os.path.dirname(folder)
                distributions.add(Found(above, canonical_name(artifact["name"]), artifact["version"]))
    return distributions


def explain(found: Found) -> str | None:
    """Say why syft lists what we do not."""
    if re.search(r"/(?:site|dist)-packages/.", found.folder):
        return "a copy that another package carries inside itself"
    if "/.cache/" in found.folder or "/pkgs/" in found.folder:
        return "in a package cache, from which nothing is imported"
    return None


def main(arguments: Iterable[str] | None = None) -> int:
    """Build, read and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--syft", required=True)
    parser.add_argument("--base", type=Path)
    parser.add_argument("--torch", type=Path)
    options = parser.parse_args(None if arguments is None else list(arguments))
    work: Path = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    base = options.base or work / "base"
    if not base.exists():
        call("debootstrap", "--variant=minbase", "--include=python3,python3-six,python3-yaml", "bookworm", base)
    root = build(work, base, options.torch)
    readings = {}
    for path in (work / "docker.tar", work / "oci.tar", work / "layout", root):
        readings[path] = read_ours(open_images(str(path), cache=None)[0])
    distributions, conda, started = readings[work / "docker.tar"]
    failed = started != "/opt/venv"
    print(f"started: {started}")
    for path, reading in readings.items():
        same = reading[:2] == (distributions, conda)
        failed |= not same
        print(
            f"{path.name}: {len(reading[0])} distributions, {len(reading[1])} conda packages{'' if same else ': DIFFERS'}"
        )
    on_disk = {
        Found(f"/{path.parent.relative_to(root)}", *path.stem.rsplit("-", 2)[:2])
        for path in root.glob("opt/**/conda-meta/*.json")
    }
    theirs = read_syft(options.syft, work / "docker.tar", work / "syft.json")
    print(f"syft lists {len(theirs)} distributions")
    for found in sorted(theirs - distributions):
        reason = explain(found)
        failed |= reason is None
        print(f"only syft: {found.folder} {found.name} {found.version}: {reason or 'NOT EXPLAINED'}")
    for found in sorted(distributions - theirs):
        failed = True
        print(f"only compatcheck: {found.folder} {found.name} {found.version}: NOT EXPLAINED")
    for found in sorted(conda ^ on_disk):
        failed = True
        print(f"conda, only {'read' if found in conda else 'on disk'}: {found.name} {found.version}: NOT EXPLAINED")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
