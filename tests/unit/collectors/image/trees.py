"""Files of images made in memory, and what usually lies in them."""

from compatcheck.collectors.image.archive import Image
from compatcheck.collectors.image.manifest import ImageConfig
from compatcheck.collectors.image.tree import Directory, File, ImageTree, Link

PROGRAM = None
"""Content of a file that is kept by name only."""


class To(str):
    """Target of a symbolic link."""

    __slots__ = ()


def make_tree(files):
    """Make the files of an image: path → text, bytes, `PROGRAM` or `To`; a path that ends in a slash is a directory."""
    tree = ImageTree()
    for path, content in files.items():
        *folders, name = path.strip("/").split("/")
        node = tree.root
        for folder in folders:
            node = node.children.setdefault(folder, Directory(0.0))
        if path.endswith("/"):
            node.children.setdefault(name, Directory(0.0))
        elif isinstance(content, To):
            node.children[name] = Link(str(content), 0.0)
        else:
            data = content.encode() if isinstance(content, str) else content
            node.children[name] = File(len(data or b"") or 1, 0.0, data)
    return tree


def make_image(files, *, env=None, entrypoint=(), cmd=(), folder=None, user=None, name="train:1"):
    config = ImageConfig(
        env=tuple((env or {}).items()), entrypoint=tuple(entrypoint), cmd=tuple(cmd), working_dir=folder, user=user
    )
    return Image(name, config, make_tree(files), ())


def dist(site, name, version, *, installer="pip"):
    """Return the metadata of a distribution."""
    folder = f"{site}/{name.replace('-', '_')}-{version}.dist-info"
    return {
        f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{folder}/INSTALLER": f"{installer}\n",
    }


def torch(site, version, cuda=None):
    text = f"__version__ = {version!r}\ndebug = False\ncuda = {cuda!r}\nhip = None\nxpu = None\n"
    return {**dist(site, "torch", version), f"{site}/torch/version.py": text}


def python(prefix, version="3.11"):
    """Return an installed Python built from source, as the official images have it."""
    return {
        f"{prefix}/bin/python{version}": PROGRAM,
        f"{prefix}/bin/python3": To(f"python{version}"),
        f"{prefix}/bin/python": To("python3"),
        f"{prefix}/lib/python{version}/os.py": PROGRAM,
        f"{prefix}/lib/python{version}/site-packages/": "",
    }


def debian(version="3.11"):
    """Return Debian's Python."""
    return {
        f"/usr/bin/python{version}": PROGRAM,
        "/usr/bin/python3": To(f"python{version}"),
        f"/usr/lib/python{version}/os.py": PROGRAM,
        "/usr/lib/python3/dist-packages/": "",
        f"/usr/local/lib/python{version}/dist-packages/": "",
    }


def venv(prefix, base="/usr/local", version="3.11", *, system=False):
    return {
        f"{prefix}/pyvenv.cfg": (
            f"home = {base}/bin\ninclude-system-site-packages = {str(system).lower()}\nversion = {version}.7\n"
        ),
        f"{prefix}/bin/python": To(f"{base}/bin/python{version}"),
        f"{prefix}/bin/python3": To("python"),
        f"{prefix}/lib/python{version}/site-packages/": "",
    }


def conda(prefix, *records, version="3.11"):
    """Return a conda prefix with Python and these records, ``name-version-build``."""
    names = (f"python-{version}.9-h1_0_cpython", *records)
    return {
        **python(prefix, version),
        **{f"{prefix}/conda-meta/{name}.json": '{"files": []}' for name in names},
    }


def site(prefix, version="3.11"):
    return f"{prefix}/lib/python{version}/site-packages"
