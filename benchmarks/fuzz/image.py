"""Fuzz the reading of container images (atheris): whatever the bytes are, images or an `InputError`, and a tree that answers.

    python benchmarks/fuzz/image.py -max_total_time=600 -timeout=20 -rss_limit_mb=1500 -max_len=4096 CORPUS

It runs in an environment that has atheris, compatcheck's dependencies and a package for zstd, with ``PYTHONPATH`` set to the
checkout. Plain bytes hardly pass the checksum of a tar header, so most inputs are instructions instead: entries with names,
kinds, sizes and links that matter here, documents, and layers inside layers, plain, gzip or zstd, with fields changed at random.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["compatcheck.collectors.image"]):
    from compatcheck.collectors.image import archive, cache, compression, layers, stream
    from compatcheck.collectors.image import wanted_files as interest

from compatcheck.core.errors import InputError

LAYER, MANIFEST = "a" * 64, "b" * 64
SITE = b"opt/venv/lib/python3.11/site-packages"
NAMES = [
    *(b"manifest.json", b"index.json", b"oci-layout", b"c.json", b"a/layer.tar"),
    *(f"blobs/sha256/{LAYER}".encode(), f"blobs/sha256/{MANIFEST}".encode()),
    *(SITE, SITE + b"/torch-2.5.0.dist-info/METADATA", SITE + b"/x.egg-info", SITE + b"/.wh.torch-2.5.0.dist-info"),
    *(b"opt", b"lib", b".wh.opt", b"opt/.wh..wh..opq", b"opt/venv/pyvenv.cfg", b"bin/python", b"usr/bin/x"),
    *(b"opt/conda-meta/a-1-0.json", b"var/lib/dpkg/status", b"var/lib/rpm/rpmdb.sqlite"),
    *(b"..", b"../x", b"/", b"./", b"a/b/c/../d"),
]
KINDS = [bytes([kind]) for kind in b"0\x00123457xgLKSVM"]
DOCUMENTS = [
    f'[{{"Config": "c.json", "RepoTags": ["a:1"], "Layers": ["a/layer.tar", "blobs/sha256/{LAYER}"]}}]',
    f'{{"manifests": [{{"digest": "sha256:{MANIFEST}", "platform": {{"os": "linux", "architecture": "amd64"}}}}]}}',
    f'{{"layers": [{{"digest": "sha256:{LAYER}", "mediaType": "x.layer"}}], "config": {{"digest": "sha256:{MANIFEST}"}}}}',
    '{"architecture": "amd64", "os": "linux", "config": {"Env": ["A=b"]}, "rootfs": {"diff_ids": ["sha256:x"]}}',
]
FOLDER = Path(tempfile.mkdtemp(prefix="fuzz-image-"))

compression.FREE_BYTES = 4 * 2**20
layers.MAX_KEPT = 2000


class Bytes:
    """A stream over bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)
        self.position = 0

    def read(self, count: int) -> bytes:
        """Return the next bytes."""
        data = self._file.read(count)
        self.position += len(data)
        return data

    def skip(self, count: int) -> int:
        """Pass over bytes."""
        return len(self.read(count))


def draw_text(data: atheris.FuzzedDataProvider) -> bytes:
    """Return a name that matters, or any."""
    return data.PickValueInList(NAMES) if data.ConsumeBool() else data.ConsumeBytes(data.ConsumeIntInRange(0, 100))


def draw_content(data: atheris.FuzzedDataProvider, depth: int) -> bytes:
    """Return what an entry holds: a document, a layer, a pax record, or anything."""
    what = data.ConsumeIntInRange(0, 6)
    inner = draw_tar(data, depth - 1) if depth and what in {1, 2, 4} else b""
    if what == 0:
        return data.PickValueInList(DOCUMENTS).encode()
    if what == 1:
        return inner
    if what == 2:
        return gzip.compress(inner, 1, mtime=0)
    if what == 3:
        text = draw_text(data)
        return b"%d path=%s\n" % (len(text) + 9, text)
    if what == 4:  # a zstd frame of one block that is not compressed
        length = len(inner)
        return b"\x28\xb5\x2f\xfd\xa0" + length.to_bytes(4, "little") + (length << 3 | 1).to_bytes(3, "little") + inner
    return data.ConsumeBytes(data.ConsumeIntInRange(0, 300))


def draw_tar(data: atheris.FuzzedDataProvider, depth: int) -> bytes:
    """Return an archive whose checksums are mostly right and whose fields may be anything."""
    out = bytearray()
    for _ in range(data.ConsumeIntInRange(0, 6)):
        if not data.remaining_bytes():
            break
        block = bytearray(512)

        def put(start: int, value: bytes, block: bytearray = block) -> None:
            value = value[: 512 - start]
            block[start : start + len(value)] = value

        kind = data.PickValueInList(KINDS)
        content = draw_content(data, depth)
        put(0, draw_text(data)[:100])
        put(124, b"%011o" % len(content) if data.ConsumeIntInRange(0, 9) else data.ConsumeBytes(12))
        put(156, kind)
        if kind in b"12":
            put(157, draw_text(data)[:100])
        put(257, b"ustar\x0000" if data.ConsumeBool() else b"ustar  \0")
        if not data.ConsumeIntInRange(0, 9):
            put(data.ConsumeIntInRange(0, 511), data.ConsumeBytes(8))
        put(148, b" " * 8)
        if data.ConsumeIntInRange(0, 30):
            put(148, b"%06o\0 " % sum(block))
        out += block + content
        if data.ConsumeIntInRange(0, 30):
            out += bytes(-len(content) % 512)
    return bytes(out) + bytes(1024 if data.ConsumeBool() else 0)


def question(image: archive.Image) -> None:
    """Ask a tree everything that is asked of trees; only an OSError may come back."""
    files = image.files
    for path in list(files.find("*"))[:500]:
        for ask in (files.resolve, files.is_file, files.is_directory, files.exists, files.read_link):
            ask(path)
        for read in (files.read_text, files.size_bytes, files.modified, files.list_names):
            with contextlib.suppress(OSError):
                read(path)
    files.glob("/*/*/py*")
    repr((image.skipped, image.config, image.layers))


def open_piped(content: bytes) -> tuple[archive.Image, ...]:
    """Read an archive that comes through a pipe, into which it must fit."""
    read, write = os.pipe()
    os.write(write, content)
    os.close(write)
    try:
        return archive.open_images(f"/dev/fd/{read}", cache=None)
    finally:
        os.close(read)


def test_one_input(raw: bytes) -> None:
    """Read what one input of the fuzzer stands for."""
    data = atheris.FuzzedDataProvider(raw)
    mode = data.ConsumeIntInRange(0, 5)
    content = draw_tar(data, 2) if mode else raw[1:]
    if mode == 5:
        content = gzip.compress(content, 1, mtime=0)
    path = FOLDER / "image.tar"
    path.write_bytes(content)
    try:
        if mode == 1 and len(content) < 60_000:
            images = open_piped(content)
        else:
            images = archive.open_images(str(path), cache=str(FOLDER / "cache") if mode == 3 else None)
    except InputError as error:
        if not error.hint:
            raise AssertionError(str(error)) from error
        return
    for image in images:
        question(image)
    for reduce in (interest.keep_record, interest.keep_dpkg_fields, interest.keep_headers, interest.keep_script):
        reduce(raw)
    record = layers.scan_layer(stream.peek(Bytes(content), 512)[1], layers.Budget())._replace(problems=())
    assert repr(cache.decode(cache.encode(record))) == repr(record)  # noqa: S101 (a fuzzer speaks by assertions)


if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()
