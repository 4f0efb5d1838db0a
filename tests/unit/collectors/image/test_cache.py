import json
import os
import time
import zlib
from pathlib import Path

import pytest

from compatcheck.collectors.image import cache
from compatcheck.collectors.image.cache import LayerCache, identify_file, layers_directory
from compatcheck.collectors.image.layers import Kept, LayerRecord
from tests.unit.collectors.image.archives import (
    To,
    digest,
    dist,
    docker_archive,
    listing,
    oci_files,
    open_image,
    squeeze,
    tar,
    write_files,
)

SITE = "opt/venv/lib/python3.11/site-packages"
LAYERS = [
    {**dist(SITE, "torch", "2.5.0"), "opt/data.bin": "x", "opt/": "", "usr/lib/python3.11/os.py": ""},
    {
        f"{SITE}/.wh.torch-2.5.0.dist-info": "",
        "usr/.wh..wh..opq": "",
        **dist(SITE, "torch", "2.6.0"),
        "caf\udce9/python": To("a\udce9"),
    },
]


def settle(path):
    """Let a file be old enough for its identity to be trusted."""
    os.utime(path, (1_700_000_000, 1_700_000_000))


@pytest.fixture(autouse=True)
def _later(monkeypatch):
    """Let it be later: the time of a file's last change of any kind cannot be set."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 60)


def cached(image):
    return [layer.from_cache for layer in image.layers]


def test_plain_layers_of_an_unchanged_file_are_found_again(tmp_path):
    path, store = docker_archive(tmp_path / "a.tar", LAYERS), str(tmp_path / "cache")
    first = open_image(path, cache=store)
    second = open_image(path, cache=store)
    assert (cached(first), cached(second)) == ([False, False], [True, True])
    assert listing(first.files) == listing(second.files)
    assert second.layers == tuple(layer._replace(from_cache=True) for layer in first.layers)
    assert open_image(path, cache=None).layers == first.layers
    assert sorted(file.stat().st_mode & 0o777 for file in Path(store).iterdir()) == [0o600, 0o600]


def test_a_file_that_was_written_again_is_read_again(tmp_path):
    store = str(tmp_path / "cache")
    path = docker_archive(tmp_path / "a.tar", LAYERS)
    settle(path)
    before = open_image(path, cache=store)
    # The same size and the same time of change; what no program can set tells them apart.
    other = [{name.replace("2.6.0", "9.9.9"): text for name, text in layer.items()} for layer in LAYERS]
    time.sleep(0.02)
    docker_archive(tmp_path / "a.tar", other)
    settle(path)
    after = open_image(path, cache=store)
    assert cached(after) == [False, False]
    assert listing(after.files) != listing(before.files)


def test_a_file_that_has_just_changed_has_no_identity(tmp_path, monkeypatch):
    monkeypatch.undo()
    path = tmp_path / "new"
    path.write_bytes(b"x")
    with path.open("rb") as file:
        assert identify_file(file.fileno()) is None
    read, write = os.pipe()
    assert identify_file(read) is None
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("form", ["archive", "layout", "pipe"])
def test_a_compressed_layer_is_found_again_by_its_digest_wherever_its_bytes_can_be_hashed_first(form, tmp_path):
    store = str(tmp_path / "cache")
    layers = [tar(layer) for layer in LAYERS]
    stored = [squeeze(layer) for layer in layers]
    open_image(docker_archive(tmp_path / "a.tar", layers, stored=stored), cache=store)
    if form == "archive":
        place = docker_archive(tmp_path / "b.tar", layers, stored=stored, tags=("other:1",))
    elif form == "layout":
        place = write_files(tmp_path / "layout", oci_files([(layers, stored, "a", "linux/amd64", True)]))
    else:
        read, write = os.pipe()
        os.write(write, Path(docker_archive(tmp_path / "b.tar", layers, stored=stored)).read_bytes())
        os.close(write)
        place = f"/dev/fd/{read}"
    image = open_image(place, cache=store)
    assert cached(image) == [form != "pipe"] * 2  # a pipe can be read once
    assert listing(image.files) == listing(open_image(str(tmp_path / "a.tar"), cache=None).files)


@pytest.mark.parametrize("piped", [False, True])
def test_a_layer_that_lies_about_its_digest_is_never_kept(piped, tmp_path):
    store = str(tmp_path / "cache")
    honest, forged = (squeeze(tar(dist(SITE, "torch", version))) for version in ("2.6.0", "2.5.0"))
    layer = tar(dist(SITE, "torch", "2.6.0"))
    files = oci_files([([layer], [honest], "a", "linux/amd64", True)])
    lying = {**files, f"blobs/sha256/{digest(honest)}": forged}
    if piped:
        (tmp_path / "lying.tar").write_bytes(tar(lying))
        read, write = os.pipe()
        os.write(write, tar(lying))
        os.close(write)
        image = open_image(f"/dev/fd/{read}", cache=store)
    else:
        image = open_image(write_files(tmp_path / "lying", lying), cache=store)
    assert "does not have the digest" in image.skipped[0].reason
    image = open_image(write_files(tmp_path / "honest", files), cache=store)
    assert cached(image) == [False]
    assert list(image.files.find_directories("*.dist-info")) == [f"/{SITE}/torch-2.6.0.dist-info"]


@pytest.mark.parametrize("form", ["layout", "archive", "pipe"])
def test_a_forged_layer_has_the_same_answer_whatever_was_read_before(form, tmp_path):
    store = str(tmp_path / "cache")
    honest, forged = (squeeze(tar(dist(SITE, "torch", version))) for version in ("2.6.0", "2.5.0"))
    layer = tar(dist(SITE, "torch", "2.6.0"))
    files = oci_files([([layer], [honest], "a", "linux/amd64", True)])
    lying = {**files, f"blobs/sha256/{digest(honest)}": forged}

    def read():
        if form == "layout":
            return open_image(write_files(tmp_path / "lying", lying), cache=store)
        if form == "archive":
            (tmp_path / "lying.tar").write_bytes(tar(lying))
            return open_image(str(tmp_path / "lying.tar"), cache=store)
        read, write = os.pipe()
        os.write(write, tar(lying))
        os.close(write)
        return open_image(f"/dev/fd/{read}", cache=store)

    cold = read()
    assert cached(open_image(write_files(tmp_path / "honest", files), cache=store)) == [False]
    warm = read()
    for image in (cold, warm):
        assert cached(image) == [False]
        assert "does not have the digest" in image.skipped[0].reason
        assert list(image.files.find_directories("*.dist-info")) == [f"/{SITE}/torch-2.5.0.dist-info"]
    assert [entry.reason for entry in cold.skipped] == [entry.reason for entry in warm.skipped]


def test_a_layer_of_an_unchanged_file_is_not_hashed_again(tmp_path, monkeypatch):
    store, layers = str(tmp_path / "cache"), [tar(layer) for layer in LAYERS]
    path = docker_archive(tmp_path / "a.tar", layers, stored=[squeeze(layer) for layer in layers])
    assert cached(open_image(path, cache=store)) == [False, False]
    monkeypatch.setattr("compatcheck.collectors.image.blobs.Hashed", None)
    assert cached(open_image(path, cache=store)) == [True, True]


def test_a_plain_layer_is_never_found_by_the_digest_it_states(tmp_path):
    store = str(tmp_path / "cache")
    honest, forged = (tar(dist(SITE, "torch", version)) for version in ("2.6.0", "2.5.0"))
    files = oci_files([([honest], [honest], "a", "linux/amd64", True)])
    open_image(write_files(tmp_path / "lying", {**files, f"blobs/sha256/{digest(honest)}": forged}), cache=store)
    image = open_image(write_files(tmp_path / "honest", files), cache=store)
    assert list(image.files.find_directories("*.dist-info")) == [f"/{SITE}/torch-2.6.0.dist-info"]


def test_a_damaged_layer_is_not_kept(tmp_path):
    store = str(tmp_path / "cache")
    path = docker_archive(tmp_path / "a.tar", [tar(LAYERS[0])[:1300]])
    assert open_image(path, cache=store).skipped == open_image(path, cache=store).skipped != ()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:0],
        lambda data: data[:-9],
        lambda data: b"x" * len(data),
        lambda data: data[:40] + b"?" + data[41:],
    ],
)
def test_damaged_records_are_read_anew(damage, tmp_path):
    path, store = docker_archive(tmp_path / "a.tar", LAYERS), tmp_path / "cache"
    first = open_image(path, cache=str(store))
    for file in store.iterdir():
        file.write_bytes(damage(file.read_bytes()))
    second = open_image(path, cache=str(store))
    assert cached(second) == [False, False]
    assert listing(first.files) == listing(second.files)
    assert cached(open_image(path, cache=str(store))) == [True, True]


@pytest.mark.parametrize(
    "place",
    [(), (0,), (0, 0), *((0, 0, number) for number in range(6)), (1,), (2,), (3, 0), (4,)],
)
@pytest.mark.parametrize("value", [None, True, "\ud800", [], {}, "x", -1.5, [[["a"]]]])
def test_a_record_of_another_shape_ends_nothing(place, value, tmp_path):
    path, store = docker_archive(tmp_path / "a.tar", LAYERS[:1]), tmp_path / "cache"
    open_image(path, cache=str(store))
    (file,) = store.iterdir()
    record = json.loads(zlib.decompress(file.read_bytes()))
    if place:
        part = record
        for key in place[:-1]:
            part = part[key]
        part[place[-1]] = value
    else:
        record = value
    file.write_bytes(zlib.compress(json.dumps(record).encode()))
    open_image(path, cache=str(store))


def test_a_pipe_among_the_records_is_not_waited_for(tmp_path):
    path, store = docker_archive(tmp_path / "a.tar", LAYERS[:1]), tmp_path / "cache"
    open_image(path, cache=str(store))
    (file,) = store.iterdir()
    file.unlink()
    os.mkfifo(file)
    assert cached(open_image(path, cache=str(store))) == [False]


@pytest.mark.parametrize("place", ["/proc/nowhere", "/dev/null/cache"])
def test_a_cache_that_cannot_be_written_costs_nothing_but_time(place, tmp_path):
    image = open_image(docker_archive(tmp_path / "a.tar", LAYERS), cache=place)
    assert image.skipped == ()


def test_every_part_of_a_record_comes_back(tmp_path):
    record = LayerRecord(
        (
            Kept("a/METADATA", "file", 7, 1.5, b"\0\xff\n"),
            Kept("a/empty", "file", 0, 0.0, b""),
            Kept("a/python", "file", None, -1.0, None),
            Kept("caf\udce9", "link", 0, 0.0, None, "../b\udce9"),
            Kept("d", "directory", 0, 3.0, None),
        ),
        ("x/y",),
        ("", "z"),
        b"12345678" * 3,
        b"abcdefgh",
        99,
    )
    store = LayerCache(str(tmp_path))
    store.store("key", record)
    assert store.find("key") == record
    assert store.find("other") is None


def test_the_cache_stays_small_and_loses_what_was_used_longest_ago(tmp_path, monkeypatch):
    store = LayerCache(str(tmp_path))
    record = LayerRecord((), hidden=os.urandom(8000))
    for number in range(6):
        store.store(f"{number}", record)
    for file in tmp_path.iterdir():
        os.utime(file, (1000, 1000))
    assert store.find("2") == record
    monkeypatch.setattr(cache, "MAX_BYTES", 20_000)
    store.prune()
    assert len(list(tmp_path.iterdir())) == 2
    assert store.find("2") == record


def test_the_place_of_the_cache_is_that_of_the_others():
    assert layers_directory({"COMPATCHECK_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == "/a/layers"
    assert layers_directory({"XDG_CACHE_HOME": "/b"}) == "/b/compatcheck/layers"
    assert layers_directory({"XDG_CACHE_HOME": "relative"}) == os.path.expanduser("~/.cache/compatcheck/layers")
