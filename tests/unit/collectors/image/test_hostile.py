"""Images made to exhaust, escape or crash: bounded time and memory, a message, and what could be read."""

import gzip
import io
import json
import subprocess
import sys
import tarfile

import pytest

from compatcheck.collectors.image import layers
from compatcheck.collectors.image.compression import FREE_BYTES
from compatcheck.collectors.image.layers import MAX_KEPT
from compatcheck.core.units import MIB
from tests import ROOT
from tests.unit.collectors.image.archives import (
    Device,
    Same,
    To,
    as_tar,
    config,
    digest,
    dist,
    docker_archive,
    docker_files,
    member,
    oci_files,
    open_image,
    squeeze,
    tar,
    write_files,
)

SITE = "opt/venv/lib/python3.11/site-packages"
GOOD = dist(SITE, "torch", "2.6.0")

READ = """
import json, sys, time
from compatcheck.collectors.image import compression
from compatcheck.collectors.image.archive import open_images
from compatcheck.core.errors import InputError
compression.FREE_BYTES = int(sys.argv[2])
try:
    images, message = open_images(sys.argv[1], cache=None), None
except InputError as error:
    images, message = (), str(error)
with open("/proc/self/status") as file:
    peak = next(int(line.split()[1]) for line in file if line.startswith("VmHWM:"))
print(json.dumps({
    "found": [sorted(image.files.find_directories("*.dist-info")) for image in images],
    "reasons": [skipped.reason for image in images for skipped in image.skipped],
    "message": message, "peak": peak * 1024, "seconds": time.process_time(),
}))
"""


def read(path, *, seconds=10, memory=100 * MIB, free=FREE_BYTES):
    """Read an image in a process of its own, and hold it to its time and memory."""
    command = [sys.executable, "-c", READ, str(path), str(free)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["seconds"] < seconds
    assert result["peak"] < memory
    return result


def torch_of(result):
    return [path.rpartition("/")[2] for found in result["found"] for path in found if "torch" in path]


def repeat(name, count, *, content=b""):
    """Return the entries of a tar, each with another number in its name, quickly."""
    info, _ = member(f"{name}{0:08}", content)
    block = bytearray(info.tobuf(tarfile.USTAR_FORMAT))
    start = len(name)
    total = sum(block) - sum(block[148:156]) + 8 * 0x20 - sum(block[start : start + 8])
    padded = content + bytes(-len(content) % 512)
    out = bytearray()
    for number in range(count):
        digits = b"%08d" % number
        block[start : start + 8] = digits
        block[148:156] = b"%06o\0 " % (total + sum(digits))
        out += block
        out += padded
    return bytes(out)


def test_entries_that_lead_out_of_the_image_are_passed_over_and_said(tmp_path):
    escapes = {
        "../../../etc/passwd": "x",
        f"{SITE}/../../../../../../evil.pth": "x",
        "/opt/absolute/pyvenv.cfg": "x",
        "opt/link": To("../../../../etc"),
        "opt/link/pyvenv.cfg": "x",
        "opt/venv/pyvenv.cfg": Same("../../../etc/passwd"),
        "opt/a/pyvenv.cfg": Same("/etc/passwd"),
        "dev/null": Device(),
        "dev/sda.pth": Device(),
        "..": To("/"),
    }
    result = read(docker_archive(tmp_path / "a.tar", [{**escapes, **GOOD}]))
    assert torch_of(result) == ["torch-2.6.0.dist-info"]
    (reason,) = result["reasons"]
    assert reason.startswith("3 entries lead out of the image")
    assert "../../../etc/passwd" in reason


def test_metadata_that_is_a_device_is_a_broken_installation_and_no_absent_one(tmp_path):
    tree = {f"{SITE}/deepspeed-0.16.4.dist-info/METADATA": Device(), **GOOD}
    image = open_image(docker_archive(tmp_path / "a.tar", [tree]), cache=None)
    path = f"/{SITE}/deepspeed-0.16.4.dist-info"
    assert path in image.files.find_directories("*.dist-info")
    assert image.files.size_bytes(f"{path}/METADATA") == 0


def test_links_in_circles_end(tmp_path):
    loops = {f"loop{number}": To(f"loop{(number + 1) % 50}/x/../y") for number in range(50)}
    wide = {f"a{number}": To("/".join([f"a{number + 1}"] * 2)) for number in range(60)}
    entries = [
        *loops.items(),
        *wide.items(),
        *((f"loop{number}/pyvenv.cfg", "x") for number in range(50)),
        ("a0/pyvenv.cfg", "x"),
    ]
    result = read(docker_archive(tmp_path / "a.tar", [{**GOOD}, tar(entries)]))
    assert torch_of(result) == ["torch-2.6.0.dist-info"]
    assert "Too many levels of symbolic links" in result["reasons"][0]


def test_paths_of_a_thousand_directories_are_bounded(tmp_path):
    deep = tar({f"{number}/{'d/' * 1000}pyvenv.cfg": "x" for number in range(300)})
    result = read(docker_archive(tmp_path / "a.tar", [GOOD, deep]), memory=200 * MIB)
    assert torch_of(result) == ["torch-2.6.0.dist-info"]
    assert "to be kept" in result["reasons"][0]


def test_many_tiny_entries_that_are_passed_over_take_no_memory(tmp_path):
    result = read(docker_archive(tmp_path / "a.tar", [{}, repeat("data/x", 40_000) + as_tar(GOOD)]))
    assert torch_of(result) == ["torch-2.6.0.dist-info"]


def test_many_tiny_entries_that_would_be_kept_end_with_a_message(tmp_path):
    result = read(
        docker_archive(tmp_path / "a.tar", [GOOD, repeat("opt/bin/python", MAX_KEPT + 5000)]), memory=200 * MIB
    )
    assert torch_of(result) == ["torch-2.6.0.dist-info"]
    assert f"more than {MAX_KEPT:,} files and links" in result["reasons"][0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["data/x", "opt/bin/python"])
def test_a_million_tiny_entries_are_bounded(name, tmp_path):
    result = read(docker_archive(tmp_path / "a.tar", [GOOD, repeat(name, 1_000_000)]), seconds=30, memory=200 * MIB)
    assert torch_of(result) == ["torch-2.6.0.dist-info"]


def test_metadata_of_100_megabytes_is_read_from_its_head(tmp_path):
    layer = tar(
        {
            f"{SITE}/torch-2.6.0.dist-info/METADATA": b"Name: torch\nVersion: 2.6.0\n" + b"x" * (100 * 2**20),
            **dist(SITE, "a", "1"),
        }
    )
    result = read(docker_archive(tmp_path / "a.tar", [layer]), memory=60 * MIB)
    assert [path.rpartition("/")[2] for path in result["found"][0]] == ["a-1.dist-info", "torch-2.6.0.dist-info"]


def test_metadata_without_end_in_many_files_is_bounded(tmp_path):
    heads = tar([(f"{SITE}/x-{number}.dist-info/METADATA", b"Name: x\n" * 8192) for number in range(1700)])
    result = read(docker_archive(tmp_path / "a.tar", [GOOD, heads]), memory=250 * MIB)
    assert torch_of(result) == ["torch-2.6.0.dist-info"]
    assert "of metadata" in result["reasons"][0]


@pytest.mark.parametrize("free", [64 * MIB, pytest.param(FREE_BYTES, marks=pytest.mark.slow)])
def test_a_gzip_bomb_ends_with_a_message(free, tmp_path):
    """100 GB are announced; what is there is twice what is read of it."""
    info, _ = member("zeros")
    info.size = 100 * 10**9
    zeros = gzip.compress(bytes(16 * MIB), 6, mtime=0)
    data = gzip.compress(_entries(GOOD) + info.tobuf(), mtime=0) + zeros * (2 * free // (16 * MIB))
    result = read(docker_archive(tmp_path / "a.tar", [as_tar({})], stored=[data]), memory=60 * MIB, free=free)
    assert torch_of(result) == ["torch-2.6.0.dist-info"]
    assert "decompression bomb" in result["reasons"][0]
    (tmp_path / "whole.gz").write_bytes(data)
    result = read(tmp_path / "whole.gz", memory=60 * MIB, free=free)
    assert torch_of(result) == ["torch-2.6.0.dist-info"]
    assert "decompression bomb" in result["reasons"][0]


def test_many_layers_share_one_allowance_of_expansion(tmp_path):
    zeros = gzip.compress(bytes(4 * MIB), 6, mtime=0)
    layers, stored = [], []
    for number in range(40):
        info, _ = member(f"zeros{number}")
        info.size = 4 * MIB
        stored.append(gzip.compress(info.tobuf(), mtime=0) + zeros)
        layers.append(f"{number}".encode())
    result = read(docker_archive(tmp_path / "a.tar", layers, stored=stored), memory=60 * MIB, free=64 * MIB)
    assert len([reason for reason in result["reasons"] if "decompression bomb" in reason]) > 10


def _entries(files):
    """Return a tar without its end."""
    buffer = io.BytesIO()
    for name, content in files.items():
        info, file = member(name, content)
        buffer.write(info.tobuf() + file.read() + bytes(-info.size % 512))
    return buffer.getvalue()


def test_gzip_of_many_empty_members_is_read_in_linear_time(tmp_path):
    empty = gzip.compress(b"", mtime=0)
    layer = gzip.compress(_entries(GOOD), mtime=0) + empty * 200_000 + gzip.compress(bytes(1024), mtime=0)
    result = read(docker_archive(tmp_path / "a.tar", [as_tar(GOOD)], stored=[layer]))
    assert torch_of(result) == ["torch-2.6.0.dist-info"]


def test_a_tar_that_is_cut_off_gives_what_came_before(tmp_path):
    cut = _entries({**GOOD, "large": b"x" * 5000})[:-3000]
    result = read(docker_archive(tmp_path / "a.tar", [tar({}), cut]))
    assert torch_of(result) == ["torch-2.6.0.dist-info"]
    assert "cut off" in result["reasons"][0]


def test_sizes_that_lie_give_what_came_before(tmp_path):
    for number, field in enumerate((b"\xff" * 12, b"\x80" + b"\xff" * 11, b"77777777777\0", b"99999999999\0")):
        block = bytearray(member("liar")[0].tobuf(tarfile.USTAR_FORMAT))
        block[124:136] = field
        block[148:156] = b" " * 8
        block[148:156] = b"%06o\0 " % sum(block)
        result = read(docker_archive(tmp_path / f"{number}.tar", [_entries(GOOD) + bytes(block) + bytes(1024)]))
        assert torch_of(result) == ["torch-2.6.0.dist-info"]
        assert len(result["reasons"]) == 1


def test_pax_headers_of_many_records_are_bounded(tmp_path):
    records = b"5 a=\n" * 200_000
    info, _ = member("pax")
    info.type, info.size = tarfile.XHDTYPE, len(records)
    one = info.tobuf(tarfile.USTAR_FORMAT) + records + bytes(-len(records) % 512)
    layer = _entries(GOOD) + (one + _entries({"a": ""})) * 10
    result = read(docker_archive(tmp_path / "a.tar", [layer]))
    assert torch_of(result) == ["torch-2.6.0.dist-info"]
    assert "far more extension headers than entries" in result["reasons"][0]


def test_the_same_layers_named_without_end_are_bounded(tmp_path):
    layer = tar({**GOOD, **{f"d/{number}.py": "" for number in range(3000)}})
    files = dict(docker_files([layer]))
    manifest = json.loads(files["manifest.json"])
    item = manifest[0]
    files["manifest.json"] = json.dumps([{**item, "Layers": item["Layers"] * (900 + number)} for number in range(30)])
    (tmp_path / "a.tar").write_bytes(tar(files))
    result = read(tmp_path / "a.tar", seconds=30, memory=250 * MIB)
    assert torch_of(result)[0] == "torch-2.6.0.dist-info"
    assert any("repeat without end" in reason for reason in result["reasons"])
    assert any("layers; the rest was not looked at" in reason for reason in result["reasons"])


def test_manifests_without_end_are_bounded(tmp_path):
    blobs = {}

    def add(document):
        data = json.dumps(document).encode()
        blobs[f"blobs/sha256/{digest(data)}"] = data
        return {"digest": f"sha256:{digest(data)}"}

    leaf = add({"layers": [], "config": add({"rootfs": {}, "x": "y" * 1_000_000})})
    indexes = [add({"manifests": [leaf] * 900, "number": number}) for number in range(900)]
    manifests = [
        add({"layers": [], "config": {"digest": "sha256:" + "0" * 64}, "number": number}) for number in range(900)
    ]
    blobs["index.json"] = json.dumps({"manifests": [*indexes, *manifests]}).encode()
    result = read(write_files(tmp_path, blobs), seconds=20, memory=200 * MIB)
    assert any("more than 1,000 manifests" in reason for reason in result["reasons"] or [result["message"]])


def test_an_archive_of_a_million_documents_is_bounded(tmp_path):
    (tmp_path / "a.tar").write_bytes(_entries({f"{number:08}/layer.tar": "" for number in range(21_000)}))
    assert "more than 20,000 documents and layers" in str(read(tmp_path / "a.tar"))


def test_a_document_of_another_size_than_a_document_is_not_read(tmp_path):
    (tmp_path / "a.tar").write_bytes(tar({"manifest.json": "[" + " " * (5 * MIB) + "]"}))
    assert read(tmp_path / "a.tar", memory=60 * MIB)["message"]
    deep = '{"a":' * 200_000 + "1" + "}" * 200_000
    files = oci_files([([tar(GOOD)], [squeeze(tar(GOOD))], "a", "linux/amd64", True)])
    files["manifest.json"] = deep.encode()
    assert torch_of(read(write_files(tmp_path / "layout", files))) == ["torch-2.6.0.dist-info"]


def test_a_layer_may_not_name_a_device_or_a_directory(tmp_path):
    files = dict(docker_files([tar(GOOD)]))
    manifest = json.loads(files["manifest.json"])
    manifest[0]["Layers"] += ["/dev/zero", "dev", "x/layer.tar", "y/layer.tar", "../../../../etc/passwd"]
    members = {
        **files,
        "x/layer.tar": To("/dev/zero"),
        "y/layer.tar": To("y/layer.tar"),
        "manifest.json": json.dumps(manifest),
    }
    (tmp_path / "a.tar").write_bytes(tar(members))
    result = read(tmp_path / "a.tar")
    assert torch_of(result) == ["torch-2.6.0.dist-info"]
    assert result["reasons"] == ["is not in the archive"] * 5


def test_a_layer_that_is_named_again_and_again_is_counted_each_time(tmp_path, monkeypatch):
    monkeypatch.setattr(layers, "MAX_ENTRIES", 100)
    layer = tar([(f"d{number}/", b"") for number in range(40)])
    data = config([layer] * 9)
    manifest = [{"Config": "c.json", "Layers": ["a.tar", *(f"{number}/../a.tar" for number in range(8))]}]
    (tmp_path / "a.tar").write_bytes(
        tar([("a.tar", layer), ("c.json", data), ("manifest.json", json.dumps(manifest).encode())])
    )
    for _ in range(2):
        image = open_image(str(tmp_path / "a.tar"), cache=str(tmp_path / "cache"))
        assert [entry for entry in image.skipped if "entries; the rest was not read" in entry.reason]
