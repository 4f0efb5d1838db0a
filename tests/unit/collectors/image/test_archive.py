import io
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from compatcheck.collectors.image.archive import open_images
from compatcheck.core.errors import InputError
from compatcheck.core.installation import tell_remedy
from tests import ROOT
from tests.unit.collectors.image.archives import (
    Same,
    To,
    as_tar,
    digest,
    dist,
    docker_archive,
    docker_files,
    listing,
    oci_files,
    open_image,
    squeeze,
    tar,
    write_files,
    zstd_frame,
)

SITE = "opt/venv/lib/python3.11/site-packages"
LAYERS = [
    {**dist(SITE, "torch", "2.5.0"), "opt/venv/pyvenv.cfg": "home = /usr/bin\n", "opt/data.bin": "x" * 5000},
    {},
    {
        f"{SITE}/.wh.torch-2.5.0.dist-info": "",
        **dist(SITE, "torch", "2.6.0"),
        "opt/venv/bin/python": To("/usr/bin/python3"),
    },
]
EXPECTED = ["torch-2.6.0.dist-info"]


def distributions(image):
    return [path.rpartition("/")[2] for path in image.files.find_directories("*.dist-info")]


def reasons(image):
    return [f"{skipped.source}: {skipped.reason}" for skipped in image.skipped]


def failure(path):
    with pytest.raises(InputError) as caught:
        open_images(str(path), cache=None)
    assert caught.value.hint
    return str(caught.value)


def has_zstd():
    for name in ("compression.zstd", "backports.zstd"):
        try:
            __import__(name)
        except ImportError:
            continue
        return True
    return False


needs_zstd = pytest.mark.skipif(
    not has_zstd(), reason="no package that reads zstd is installed: pip install backports.zstd"
)


@pytest.mark.parametrize("form", ["blobs", "legacy", "podman"])
@pytest.mark.parametrize("stored", [None, squeeze])
def test_every_form_of_a_docker_archive_is_read(form, stored, tmp_path):
    layers = [as_tar(layer) for layer in (*LAYERS, LAYERS[1])]
    run = {
        "Env": ["PATH=/opt/venv/bin:/usr/bin", "EMPTY=", "HF_HOME=/a=b"],
        "Entrypoint": ["tini", "--"],
        "Cmd": ["python"],
    }
    more = {
        "run": {**run, "WorkingDir": "/app", "Labels": {"a": "b", "c": 1}},
        "stored": stored and [*map(stored, layers)],
    }
    image = open_image(docker_archive(tmp_path / "a.tar", layers, form=form, **more), cache=None)
    assert distributions(image) == EXPECTED
    assert image.skipped == ()
    assert image.name == "train:1"
    assert image.config.env == (("PATH", "/opt/venv/bin:/usr/bin"), ("EMPTY", ""), ("HF_HOME", "/a=b"))
    assert (image.config.entrypoint, image.config.cmd, image.config.working_dir) == (
        ("tini", "--"),
        ("python",),
        "/app",
    )
    assert (image.config.architecture, image.config.os) == ("amd64", "linux")
    assert [layer.record.entries for layer in image.layers] == [4, 0, 4, 0]
    assert {layer.compression for layer in image.layers} == ({"gzip"} if stored else {"none"})


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("form", ["blobs", "legacy"])
def test_the_manifest_may_come_first_or_last_also_in_a_pipe(form, reverse, tmp_path):
    files = docker_files([as_tar(layer) for layer in LAYERS], form=form)
    data = tar(files[::-1] if reverse else files)
    (tmp_path / "a.tar").write_bytes(data)
    from_file = open_image(str(tmp_path / "a.tar"), cache=None)
    read, write = os.pipe()
    writer = threading.Thread(target=lambda: (os.write(write, data), os.close(write)))
    writer.start()
    from_pipe = open_image(f"/dev/fd/{read}", cache=None)
    writer.join()
    os.close(read)
    assert listing(from_pipe.files) == listing(from_file.files)
    assert distributions(from_pipe) == EXPECTED
    assert from_pipe.skipped == from_file.skipped == ()
    assert from_pipe.layers == from_file.layers


@pytest.mark.parametrize("redirected", [False, True])
def test_standard_input_is_read(redirected, tmp_path):
    path = docker_archive(tmp_path / "a.tar", LAYERS)
    program = (
        "from compatcheck.collectors.image.archive import open_images\n"
        "image = open_images('-', cache=None)[0]\n"
        "print(image.origin, *image.files.find_directories('*.dist-info'))\n"
    )
    command = [sys.executable, "-c", program]
    with open(path, "rb") as file:
        given = {"stdin": file} if redirected else {"input": file.read()}
        done = subprocess.run(command, capture_output=True, check=True, cwd=ROOT, **given)
    assert done.stdout.decode().split() == ["<stdin>", f"/{SITE}/{EXPECTED[0]}"]


@pytest.mark.parametrize("squeezed", [squeeze, pytest.param(zstd_frame, marks=needs_zstd)])
def test_an_archive_that_is_compressed_as_a_whole_is_read(squeezed, tmp_path):
    path = tmp_path / "a.tar.gz"
    path.write_bytes(squeezed(tar(docker_files([as_tar(layer) for layer in LAYERS]))))
    assert distributions(open_image(str(path), cache=None)) == EXPECTED


@pytest.mark.parametrize(
    ("stored", "suffix"), [(bytes, ""), (squeeze, "+gzip"), pytest.param(zstd_frame, "+zstd", marks=needs_zstd)]
)
@pytest.mark.parametrize("form", ["directory", "archive", "pipe"])
def test_oci_layouts_and_archives_are_read(stored, suffix, form, tmp_path):
    layers = [as_tar(layer) for layer in LAYERS]
    media = f"application/vnd.oci.image.layer.v1.tar{suffix}"
    files = oci_files([(layers, [*map(stored, layers)], "example.com/train:1", "linux/amd64", True)], media=media)
    place = write_files(tmp_path / "layout", files)
    if form != "directory":
        place = str(tmp_path / "a.tar")
        Path(place).write_bytes(tar(files))
    if form == "pipe":
        place = pipe_of(Path(place).read_bytes())
    image = open_image(place, cache=None)
    assert distributions(image) == EXPECTED
    assert (image.name, image.skipped) == ("example.com/train:1", ())


def pipe_of(data):
    read, write = os.pipe()
    threading.Thread(target=lambda: (os.write(write, data), os.close(write)), daemon=True).start()
    return f"/dev/fd/{read}"


def test_every_platform_whose_blobs_are_there_is_an_image(tmp_path):
    first, second, third = ([tar(dist(SITE, "torch", version))] for version in ("2.4.0", "2.5.0", "2.6.0"))
    files = oci_files(
        [
            (first, first, "train", "linux/amd64", True),
            (second, second, "train", "linux/arm64", True),
            (third, third, "train", "linux/ppc64le", False),
            (third, third, "train", "unknown/unknown", True),
        ]
    )
    images = open_images(write_files(tmp_path, files), cache=None)
    assert [(image.config.architecture, *distributions(image)) for image in images] == [
        ("amd64", "torch-2.4.0.dist-info"),
        ("arm64", "torch-2.5.0.dist-info"),
    ]
    assert [image.name for image in images] == ["train", "train"]
    assert [image.origin.partition(" ")[2] for image in images] == ["(train, linux/amd64)", "(train, linux/arm64)"]
    assert [image.skipped for image in images] == [(), ()]
    assert images[0].notes == ("linux/ppc64le is in the index, but not in the archive",)


def test_an_annotation_alone_hides_no_image(tmp_path):
    layers = [tar(dist(SITE, "torch", "2.4.0"))]
    files = oci_files([(layers, layers, "train", "linux/amd64", True)])
    index = json.loads(files["index.json"])
    for value in ("x", "attestation-manifest"):
        index["manifests"][0]["annotations"]["vnd.docker.reference.type"] = value
        files["index.json"] = json.dumps(index).encode()
        (image,) = open_images(write_files(tmp_path / value, files), cache=None)
        assert distributions(image) == ["torch-2.4.0.dist-info"]


@pytest.mark.parametrize("link", [Same, To])
@pytest.mark.parametrize("form", ["file", "pipe"])
def test_the_last_member_of_a_name_counts(tmp_path, link, form):
    clean, real = tar(dist(SITE, "torch", "2.4.0")), tar(dist(SITE, "torch", "2.5.0"))
    files = docker_files([real], form="podman")
    name = files[0][0]
    data = tar([("clean.tar", clean), (name, link("clean.tar")), *files])
    place = str(tmp_path / "a.tar")
    Path(place).write_bytes(data)
    image = open_image(pipe_of(data) if form == "pipe" else place, cache=None)
    assert distributions(image) == ["torch-2.5.0.dist-info"]


def test_docker_saves_the_index_of_platforms_that_were_not_pulled(tmp_path):
    here, there = ([tar(dist(SITE, "torch", version))] for version in ("2.4.0", "2.5.0"))
    files = oci_files([(here, here, "train", "linux/amd64", True), (there, there, "train", "linux/arm64", True)])
    del files[f"blobs/sha256/{digest(there[0])}"]
    manifest = json.dumps([{"Layers": [f"blobs/sha256/{digest(here[0])}"], "RepoTags": ["train:1"]}])
    image = open_image(write_files(tmp_path, {**files, "manifest.json": manifest.encode()}), cache=None)
    assert distributions(image) == ["torch-2.4.0.dist-info"]
    assert [entry.reason for entry in image.skipped if "configuration" not in entry.reason] == []
    assert [note.partition(": ")[2] for note in image.notes] == ["none of its layers is in the archive"]


def test_signatures_beside_an_image_are_passed_over(tmp_path):
    layer, payload = as_tar(LAYERS[0]), b'{"critical": {}}'
    files = oci_files(
        [([layer], [layer], "a", "linux/amd64", True), ([payload], [payload], "a.sig", "linux/amd64", True)]
    )
    index = json.loads(files["index.json"])
    name = "blobs/sha256/" + index["manifests"][1]["digest"].partition(":")[2]
    signature = json.loads(files[name])
    signature["layers"][0]["mediaType"] = "application/vnd.dev.cosign.simplesigning.v1+json"
    del files[name]
    data = json.dumps(signature).encode()
    index["manifests"][1]["digest"] = f"sha256:{digest(data)}"
    files |= {f"blobs/sha256/{digest(data)}": data, "index.json": json.dumps(index).encode()}
    image = open_image(write_files(tmp_path, files), cache=None)
    assert (distributions(image), image.skipped) == (["torch-2.5.0.dist-info"], ())
    index["manifests"] = index["manifests"][1:]
    files["index.json"] = json.dumps(index).encode()
    with pytest.raises(InputError, match="holds something else than an image"):
        open_images(write_files(tmp_path / "alone", files), cache=None)


def test_an_index_may_hold_indexes_and_itself(tmp_path):
    layers = [as_tar(LAYERS[0])]
    files = oci_files([(layers, layers, "a", "linux/amd64", True)])
    inner = files["index.json"]
    name = f"sha256:{digest(inner)}"
    files[f"blobs/sha256/{digest(inner)}"] = inner
    descriptors = [
        {"digest": name, "annotations": {"io.containerd.image.name": "outer:1"}},
        {"digest": name},
        {"size": 1},
        7,
    ]
    files["index.json"] = json.dumps({"manifests": descriptors}).encode()
    (image,) = open_images(write_files(tmp_path, files), cache=None)
    assert len(image.skipped) == 2
    assert distributions(image) == ["torch-2.5.0.dist-info"]


def test_images_of_both_manifests_of_a_docker_archive_are_there_once(tmp_path):
    layers = [as_tar(layer) for layer in LAYERS]
    members = dict(docker_files(layers, run={"Env": ["A=1"]}))
    members.update(oci_files([(layers, layers, "a", "linux/amd64", True)]))
    (tmp_path / "a.tar").write_bytes(tar(members))
    (image,) = open_images(str(tmp_path / "a.tar"), cache=None)
    assert image.name == "train:1"


@pytest.mark.parametrize("other", ["layer", "entry point"])
def test_manifests_that_lead_elsewhere_are_two_images_whatever_they_state(other, tmp_path):
    layers = [as_tar(layer) for layer in LAYERS[:2]]
    shown, real = (layers[:1] * 2, layers) if other == "layer" else (layers, layers)
    run = {"Env": ["A=1"], **({"Cmd": ["true"]} if other == "entry point" else {})}
    files = dict(docker_files(layers, run=run, stored=shown))  # its diff ids are those of the other
    files.update(oci_files([(real, real, "a", "linux/amd64", True)]))
    (tmp_path / "a.tar").write_bytes(tar(files))
    assert len(open_images(str(tmp_path / "a.tar"), cache=None)) == 2


@pytest.mark.parametrize("kind", ["manifest", "config"])
def test_a_document_that_is_not_what_its_digest_says_is_refused(kind, tmp_path):
    layers = [as_tar(layer) for layer in LAYERS[:2]]
    files = oci_files([(layers, layers, "a", "linux/amd64", True)])
    forged = oci_files([(layers[:1], layers[:1], "a", "linux/amd64", True)])
    names = [_named(laid, kind) for laid in (files, forged)]
    files[names[0]] = forged[names[1]]
    place = write_files(tmp_path, {**forged, **files})
    if kind == "manifest":
        assert "damaged or forged" in failure(place)
    else:
        (image,) = open_images(place, cache=None)
        assert any("damaged or forged" in entry.reason for entry in image.skipped)


def _named(files, kind):
    manifest = "blobs/sha256/" + json.loads(files["index.json"])["manifests"][0]["digest"].partition(":")[2]
    if kind == "manifest":
        return manifest
    return "blobs/sha256/" + json.loads(files[manifest])["config"]["digest"].partition(":")[2]


def test_several_images_of_an_archive_are_told_apart(tmp_path):
    one, two = docker_files([as_tar(LAYERS[0])], tags=["a:1"]), docker_files([as_tar(LAYERS[2])], tags=[])
    manifest = [*json.loads(dict(one)["manifest.json"]), *json.loads(dict(two)["manifest.json"])]
    (tmp_path / "a.tar").write_bytes(tar({**dict(one), **dict(two), "manifest.json": json.dumps(manifest)}))
    images = open_images(str(tmp_path / "a.tar"), cache=None)
    assert [distributions(image) for image in images] == [["torch-2.5.0.dist-info"], EXPECTED]
    assert images[0].name == "a:1"
    assert images[1].name == str(tmp_path / "a.tar")
    assert images[0].origin != images[1].origin


@pytest.mark.parametrize("form", ["directory", "tar", "gzip", "pipe"])
def test_a_root_directory_and_its_archive_are_read(form, tmp_path):
    root = tmp_path / "root"
    files = {
        **dist(SITE, "torch", "2.6.0"),
        "etc/os-release": "ID=debian\n",
        "opt/venv/pyvenv.cfg": "x",
        "conda/conda-meta/numpy-2.0.0-0.json": "{}",
        "usr/local/cuda/version.json": "{}",
        "srv/data.tar": "x",
    }
    write_files(root, {name: text.encode() for name, text in files.items()})
    (root / "opt/venv/bin").mkdir()
    (root / "opt/venv/bin/python").symlink_to("/usr/bin/python3")
    os.mkfifo(root / "opt/venv/pipe.pth")
    place = root
    if form != "directory":
        data = tar(
            {
                "./": "",
                **{f"./{name}": text for name, text in files.items()},
                "opt/venv/bin/python": To("/usr/bin/python3"),
            }
        )
        place = tmp_path / "root.tar"
        place.write_bytes(squeeze(data) if form == "gzip" else data)
        if form == "pipe":
            place = pipe_of(data)
    image = open_image(str(place), cache=None)
    assert distributions(image) == EXPECTED
    assert image.files.read_link("/opt/venv/bin/python") == "/usr/bin/python3"
    assert image.files.read_text("/etc/os-release") == "ID=debian\n"
    assert image.files.is_file("/conda/conda-meta/numpy-2.0.0-0.json")
    assert image.files.read_text("/usr/local/cuda/version.json") == "{}"
    assert image.config.env == ()
    assert len(image.notes) == 1


def test_a_root_directory_is_never_left(tmp_path):
    (tmp_path / "secret").write_text("home = secret\n")
    root = tmp_path / "root"
    (root / "opt").mkdir(parents=True)
    (root / "opt/pyvenv.cfg").symlink_to(tmp_path / "secret")
    (root / "opt/up").symlink_to("../..")
    image = open_image(str(root), cache=None)
    with pytest.raises(FileNotFoundError):
        image.files.read_text("/opt/pyvenv.cfg")
    assert image.files.list_names("/opt/up/") == ["opt"]


@pytest.mark.parametrize("way", ["blobs", "blobs/sha256", "each"])
def test_blobs_of_a_layout_may_be_links(tmp_path, way):
    layer = tar(dist("opt/venv/lib/python3.11/site-packages", "torch", "2.5.0"))
    files = oci_files([([layer], [layer], "a:1", "linux/amd64", True)])
    write_files(tmp_path / "store", files)
    layout = tmp_path / "layout"
    for name in files:
        place = layout / (name if way == "each" or not name.startswith("blobs/") else way)
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.is_symlink():
            place.symlink_to(tmp_path / "store" / place.relative_to(layout))
    assert listing(open_image(str(layout), cache=None).files) == listing(
        open_image(str(tmp_path / "store"), cache=None).files
    )


def test_files_of_a_root_directory_that_may_not_be_read_are_said(tmp_path, monkeypatch):
    write_files(tmp_path, {"etc/os-release": b"x", "opt/venv/pyvenv.cfg": b"x"})
    real = os.open

    def deny(path, *given, **options):
        if b"pyvenv" in os.fsencode(path):
            raise PermissionError(13, "Permission denied")
        return real(path, *given, **options)

    monkeypatch.setattr(os, "open", deny)
    image = open_image(str(tmp_path), cache=None)
    assert "/opt/venv/pyvenv.cfg could not be read: Permission denied" in reasons(image)[0]


def test_an_unpacked_docker_archive_is_read(tmp_path):
    members = {
        name: content if isinstance(content, bytes) else content.encode()
        for name, content in docker_files([as_tar(LAYERS[2])])
    }
    assert distributions(open_image(write_files(tmp_path, members), cache=None)) == EXPECTED


# --- what cannot be read is said, what can be is read ---


@pytest.mark.parametrize("piped", [False, True])
def test_a_layer_that_is_missing_is_said(piped, tmp_path):
    files = docker_files([as_tar(layer) for layer in LAYERS])
    data = tar(files[1:])
    (tmp_path / "a.tar").write_bytes(data)
    image = open_image(pipe_of(data) if piped else str(tmp_path / "a.tar"), cache=None)
    assert distributions(image) == EXPECTED
    assert len(image.layers) == 2
    assert "layer 1 of 3" in reasons(image)[0]
    assert "is not in the archive" in reasons(image)[0]


@pytest.mark.parametrize("piped", [False, True])
def test_an_archive_that_was_cut_off_is_read_as_far_as_it_goes(piped, tmp_path):
    files = docker_files([as_tar(LAYERS[0]), tar({"opt/large.bin": "0" * 100_000, **dist(SITE, "numpy", "2.0.0")})])
    data = tar([*files[-3:-1], *files[:-3]])[:-60_000]
    (tmp_path / "a.tar").write_bytes(data)
    image = open_image(pipe_of(data) if piped else str(tmp_path / "a.tar"), cache=None)
    assert distributions(image) == ["torch-2.5.0.dist-info"]
    assert any("cut off" in reason for reason in reasons(image))


@pytest.mark.parametrize("kept", ["an entry", "a part of its padding"])
def test_a_layer_that_was_cut_off_behind_an_entry_is_said(kept, tmp_path):
    layer = as_tar({f"{SITE}/torch-2.5.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 2.5.0\n"})
    files = oci_files([([layer], [layer], "a", "linux/amd64", True)])
    end = len(layer.rstrip(b"\0"))
    files[f"blobs/sha256/{digest(layer)}"] = layer[: end + -end % 512 if kept == "an entry" else end + 3]
    write_files(tmp_path, files)
    image = open_image(str(tmp_path), cache=None)
    assert any("does not have the digest that is stated" in reason for reason in reasons(image))


def test_a_layer_with_the_wrong_digest_is_said(tmp_path):
    layers = [as_tar(LAYERS[0])]
    files = oci_files([(layers, [squeeze(layers[0])], "a", "linux/amd64", True)])
    name = f"blobs/sha256/{digest(squeeze(layers[0]))}"
    files[name] = squeeze(as_tar(LAYERS[2]))
    (reason,) = reasons(open_image(write_files(tmp_path, files), cache=None))
    assert "does not have the digest that is stated" in reason


def test_without_a_package_for_zstd_the_layer_is_skipped_with_the_remedy(tmp_path, monkeypatch):
    for name in ("compression.zstd", "backports.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    layers = [as_tar(LAYERS[0]), as_tar(LAYERS[2])]
    path = docker_archive(tmp_path / "a.tar", layers, stored=[layers[0], zstd_frame(layers[1])])
    image = open_image(path, cache=None)
    (skipped,) = image.skipped
    assert "zstd" in skipped.reason
    assert skipped.hint == tell_remedy("backports.zstd")
    assert distributions(image) == ["torch-2.5.0.dist-info"]
    (tmp_path / "whole.tar.zst").write_bytes(zstd_frame(Path(path).read_bytes()))
    assert "zstd" in failure(tmp_path / "whole.tar.zst")


def test_a_configuration_that_is_missing_is_said(tmp_path):
    files = [
        file for file in docker_files([as_tar(LAYERS[0])]) if not file[0].endswith(digest(b"")) and file[1][:1] != b"{"
    ]
    (tmp_path / "a.tar").write_bytes(tar(files))
    image = open_image(str(tmp_path / "a.tar"), cache=None)
    assert "configuration is missing" in reasons(image)[0]
    assert distributions(image) == ["torch-2.5.0.dist-info"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04" + bytes(600), "compressed with zip"),
        (b"BZh9" + bytes(600), "compressed with bzip2"),
        (b"torch==2.6.0\n", "does not begin as a tar archive"),
        (b"{" + b" " * 600, "does not begin as a tar archive"),
        (tar({"a.txt": "x"}), "no image in it"),
        (bytes(10240), "no image in it"),
        (squeeze(b"text"), "what it expands to is not an image archive"),
        (squeeze(bytes(5000))[:20], "gzip data ends early"),
        (b"\x1f\x8b" + b"x" * 600, "gzip data is damaged"),
        (tar({"manifest.json": "[]"}), "names no image"),
        (tar({"manifest.json": "{"}), "is not valid JSON"),
        (tar({"manifest.json": "[" * 100_000}), "nested more than 100 levels"),
        (
            tar({"manifest.json": '[{"Config": "a.json", "Config": "b.json", "Layers": []}]'}),
            "has the key 'Config' twice",
        ),
        (tar({"manifest.json": "[1, {}]"}), "describes no image"),
        (
            tar({"manifest.json": '[{"Config": "a.json", "Layers": ["a/layer.tar"]}]'}),
            "none of its layers is in the archive",
        ),
        (tar({"a/layer.tar": "x", "repositories": "{}"}), "no manifest.json"),
        (
            tar({"oci-layout": "{}", "index.json": '{"manifests": [{"digest": "sha256:../../etc/passwd"}]}'}),
            "not in the archive",
        ),
        (tar({"index.json": '{"manifests": 7}'}), "names no image"),
    ],
)
@pytest.mark.parametrize("piped", [False, True])
def test_what_is_no_image_is_said(content, reason, piped, tmp_path):
    (tmp_path / "a.tar").write_bytes(content)
    assert reason in failure(pipe_of(content) if piped else tmp_path / "a.tar")


def test_places_without_an_image_are_said(tmp_path):
    assert "no such file" in failure(tmp_path / "missing.tar")
    assert "not an image" in failure("/dev/zero")
    assert "is no path" in failure("a\0b")
    (tmp_path / "notes.txt").write_text("x")
    assert "neither an OCI layout nor a root directory" in failure(tmp_path)
    (tmp_path / "oci-layout").write_text("{}")
    assert "without an image" in failure(tmp_path)


def test_a_manifest_names_nothing_outside_its_directory(tmp_path):
    outside = tmp_path / "outside.tar"
    outside.write_bytes(as_tar(LAYERS[0]))
    inside = tmp_path / "inside"
    manifest = [
        {
            "Config": "../outside.json",
            "RepoTags": None,
            "Layers": ["../outside.tar", str(outside), "a/../../outside.tar"],
        }
    ]
    write_files(inside, {"manifest.json": json.dumps(manifest).encode()})
    assert "none of its layers" in failure(inside)


def test_a_layer_that_is_a_pipe_is_not_waited_for(tmp_path):
    write_files(tmp_path, {"manifest.json": json.dumps([{"Config": "c.json", "Layers": ["layer.tar"]}]).encode()})
    os.mkfifo(tmp_path / "layer.tar")
    assert "none of its layers" in failure(tmp_path)


def test_hostile_types_in_documents_are_no_crash(tmp_path):
    layer = as_tar(LAYERS[0])
    values = (None, 7, "text", [], {}, [[]], [{}], {"a": []}, True, 1e308)
    for number, value in enumerate(values):
        run = {"Env": value, "Entrypoint": value, "Cmd": value, "WorkingDir": value, "Labels": value, "User": value}
        more = {"run": run, "architecture": value, "os": value, "created": value, "rootfs": value, "variant": value}
        path = docker_archive(tmp_path / f"{number}.tar", [layer], tags=[], **more)
        assert distributions(open_image(path, cache=None)) == ["torch-2.5.0.dist-info"]
        for key in ("Config", "RepoTags"):
            files = dict(docker_files([layer]))
            manifest = json.loads(files["manifest.json"])
            manifest[0][key] = value
            (tmp_path / "b.tar").write_bytes(tar({**files, "manifest.json": json.dumps(manifest)}))
            assert distributions(open_image(str(tmp_path / "b.tar"), cache=None)) == ["torch-2.5.0.dist-info"]
        files = oci_files([([layer], [layer], "a", "linux/amd64", True)])
        index = json.loads(files["index.json"])
        for key in ("platform", "annotations", "mediaType", "size"):
            index["manifests"][0][key] = value
        files["index.json"] = json.dumps(index).encode()
        (tmp_path / "c.tar").write_bytes(tar(files))
        assert distributions(open_image(str(tmp_path / "c.tar"), cache=None)) == ["torch-2.5.0.dist-info"]


@pytest.mark.parametrize("value", [None, 7, [], {}])
def test_layers_without_a_name_are_said(value, tmp_path):
    files = dict(docker_files([as_tar(LAYERS[0]), as_tar(LAYERS[1])]))
    manifest = json.loads(files["manifest.json"])
    manifest[0]["Layers"][1] = value
    (tmp_path / "a.tar").write_bytes(tar({**files, "manifest.json": json.dumps(manifest)}))
    image = open_image(str(tmp_path / "a.tar"), cache=None)
    assert distributions(image) == ["torch-2.5.0.dist-info"]
    assert [entry.reason for entry in image.skipped] == [
        "1 of its layers in manifest.json has no name and was not read"
    ]


def test_nothing_is_written_anywhere(tmp_path, monkeypatch):
    path = docker_archive(tmp_path / "a.tar", [{**LAYERS[0], "../../escape": "x", "/absolute": "x"}])
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")}
    opened = []
    real = os.open
    monkeypatch.setattr(
        os, "open", lambda name, flags, *more, **options: (opened.append(flags), real(name, flags, *more, **options))[1]
    )
    monkeypatch.setattr(io, "open", None)
    open_image(path, cache=None)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*")} == before
    assert not any(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) for flags in opened)
