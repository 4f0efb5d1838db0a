"""Environments made of files alone, for tests: nothing in them can run."""

from pathlib import Path

ELF = b"\x7fELF\x02\x01\x01"


def make_prefix(root, *, version="3.11", real=True):
    """Make an installed Python: interpreter, standard library, site-packages."""
    prefix = Path(root)
    (prefix / "bin").mkdir(parents=True, exist_ok=True)
    library = prefix / "lib" / f"python{version}"
    (library / "site-packages").mkdir(parents=True, exist_ok=True)
    if real:
        (library / "os.py").touch()
        (prefix / "bin" / f"python{version}").write_bytes(ELF)
        for name in ("python3", "python"):
            link = prefix / "bin" / name
            if not link.exists():
                link.symlink_to(f"python{version}")
    return prefix


def make_venv(root, base, *, version="3.11.7", system=False, extra=""):
    """Make a virtual environment as the venv module lays it out."""
    prefix = Path(root)
    short = ".".join(version.split(".")[:2])
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib" / f"python{short}" / "site-packages").mkdir(parents=True)
    (prefix / "bin" / "python").symlink_to(Path(base) / "bin" / "python3")
    (prefix / "bin" / "python3").symlink_to("python")
    text = f"home = {base}/bin\ninclude-system-site-packages = {str(system).lower()}\nversion = {version}\n{extra}"
    (prefix / "pyvenv.cfg").write_text(text)
    return prefix


def site_of(prefix, version="3.11"):
    return Path(prefix) / "lib" / f"python{version}" / "site-packages"


def add_dist(site, name, version, *, directory=None, installer="pip", files=None, metadata=None):
    """Add the metadata of a distribution, and files beside it."""
    site = Path(site)
    folder = site / (directory or f"{name.replace('-', '_')}-{version}.dist-info")
    folder.mkdir(parents=True)
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: x\n\nName: body\n"
    (folder / "METADATA").write_text(text if metadata is None else metadata)
    if installer is not None:
        (folder / "INSTALLER").write_text(installer + "\n")
    for path, content in (files or {}).items():
        target = site / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
    return folder


def torch_version(version, cuda=None, hip=None):
    """Write torch/version.py as its releases do."""
    return (
        "from typing import Optional\n\n__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'xpu']\n"
        f"__version__ = {version!r}\ndebug = False\ncuda: Optional[str] = {cuda!r}\n"
        f"git_version = 'cf30153c4c131c8164ee7798e5022d810682e2cb'\nhip: Optional[str] = {hip!r}\nxpu: Optional[str] = None\n"
    )


def add_torch(site, version, *, cuda=None, hip=None, metadata_version=None, **options):
    return add_dist(
        site,
        "torch",
        metadata_version or version,
        files={"torch/version.py": torch_version(version, cuda, hip)},
        **options,
    )


def add_conda(prefix, *records, files=None):
    """Add records of conda, ``name-version-build``; ``files`` are those the record lists, by name."""
    folder = Path(prefix) / "conda-meta"
    folder.mkdir(exist_ok=True)
    for record in records:
        listed = ", ".join(f'"{path}"' for path in (files or {}).get(record.rsplit("-", 2)[0], ()))
        (folder / f"{record}.json").write_text(f'{{"files": [{listed}]}}')
