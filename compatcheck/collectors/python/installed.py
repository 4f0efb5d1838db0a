"""Installed distributions of one environment, from the names of their metadata directories.

Only direct children of the package directories count: copies that other packages carry inside themselves are never
imported under their own name. Nothing is imported or executed; lines of ``.pth`` files that would be are listed.
"""

from __future__ import annotations

import os
import re

from compatcheck.collectors.python.components import (
    CONDA_FORGE,
    TorchBuild,
    find_components,
    find_conda_forge,
    read_torch_build,
)
from compatcheck.collectors.python.distributions import (
    canonical_name,
    read_name_and_version,
    same_version,
    split_egg_stem,
    split_stem,
)
from compatcheck.collectors.python.version_files import VERSION_FILES, VersionFile, read_cxx11_abi, read_version_file
from compatcheck.core.environment import Damage, Environment, Package
from compatcheck.core.files import LOCAL, Files
from compatcheck.core.redaction import redact
from compatcheck.core.source import Skipped, Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from compatcheck.collectors.python.conda_records import CondaPackage
    from compatcheck.collectors.python.interpreter import Layout

_REINSTALL = "reinstall it: pip install --force-reinstall --no-deps"
ASK_OWNER = "run as a user who may read it"
"""What can be done about a file of this machine that may not be read."""
_PTH_CHARACTERS = 1 << 20
_PTH_DIRECTORIES = 2000
"""Of those that the ``.pth`` files of one environment name; real ones name a few, a monorepo some hundred."""
_EDITABLE = r'"editable"\s*:\s*true'
_VCS = r'"vcs"\s*:\s*"(\w+)"'
_COMMIT = r'"commit_id"\s*:\s*"(\w+)"'
_URL = r'"url"\s*:\s*"([^"\\]*)"'


def collect_installed(layout: Layout, *, files: Files = LOCAL) -> Environment:
    """Read what is installed in an environment, in the tree of files it lies in."""
    scan = _Scan(files)
    for path, reason in layout.lost:
        scan.skip(path, reason, None)
    for folder in layout.python_path:
        if folder.lower().endswith(".egg") or files.is_directory(folder):
            scan.read_folder(folder, follow=False)
        else:
            scan.skip(folder, "is no directory on PYTHONPATH, and was not looked into", None, lost=False)
    for folder in layout.site_packages:
        scan.read_folder(folder, follow=True)
    scan.resolve_links()
    conda = scan.read_conda(layout.conda_meta)
    torch = scan.read_torch(scan.check_version_files().get("torch"), conda)
    components, notes = find_components(scan.packages, conda, torch)
    if conda:
        from compatcheck.collectors.python.conda_records import find_replaced  # noqa: PLC0415 (conda prefixes only)

        scan.damage += find_replaced(conda, scan.packages, scan.copies, files)
    if scan.code:
        scan.notes.append("lines that run code when Python starts were not followed: " + ", ".join(scan.code))
    return Environment(
        layout.origin,
        scan.packages,
        complete=scan.complete,
        python=layout.version,
        components=components,
        facts=scan.facts,
        damage=tuple(scan.damage),
        skipped=tuple(scan.skipped),
        notes=(*layout.notes, *scan.notes, *notes),
    )


class _Scan:
    """What has been found so far, while the directories are read in import order."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.packages: dict[str, Package] = {}
        self.folders: dict[str, str] = {}
        """Directory each distribution's metadata lies in."""
        self.copies: dict[str, list[Package]] = {}
        """Every set of metadata of the distributions that have several in one directory."""
        self.facts: dict[str, tuple[object, Source]] = {}
        self.damage: list[Damage] = []
        self.skipped: list[Skipped] = []
        self.notes: list[str] = []
        self.code: list[str] = []
        self.links: list[tuple[str, str]] = []
        self.followed = 0
        """Directories that ``.pth`` files have named."""
        self.complete = True
        self._read: set[str] = set()

    def read_folder(self, folder: str, *, follow: bool) -> None:
        """Read the metadata directly in a directory, then the directories its ``.pth`` files name, if they count."""
        if folder in self._read:
            return
        self._read.add(folder)
        if folder.lower().endswith(".egg"):  # as importlib.metadata compares it
            self._read_egg(folder)
            return
        try:
            names = self.files.list_names(folder)
        except NotADirectoryError:
            self.skip(folder, "is an archive and was not looked into", None)
            return
        except OSError as error:
            self.skip(folder, f"could not be listed: {error.strerror}", ASK_OWNER)
            return
        found: dict[str, list[Package]] = {}
        broken: list[tuple[str, str]] = []
        paths = []
        for name in names:
            ending = name[-10:].lower()  # as importlib.metadata compares it
            if ending == ".dist-info":
                package = self._read_dist_info(folder, name, broken)
            elif ending.endswith(".egg-info"):
                package = self._read_egg_info(folder, name, broken)
            else:
                if follow and name.endswith(".pth") and not name.startswith("."):
                    paths.append(name)
                elif name.endswith(".egg-link"):
                    self.links.append((folder, name))
                continue
            if package is not None:
                found.setdefault(package.name, []).append(package)
        for name, version in broken:
            # Its files may well be there: what is not known must not read as absent.
            found.setdefault(name, [Package(name, None, Source(version), specifier="")])
        self._take(folder, found)
        for name in sorted(paths):
            if self.followed <= _PTH_DIRECTORIES:
                self._follow_pth(folder, name)

    def _read_dist_info(self, folder: str, name: str, broken: list[tuple[str, str]]) -> Package | None:
        path = f"{folder}{os.sep}{name}"
        if name.startswith("~"):
            self.skip(path, "was left behind by an interrupted pip", "delete it", lost=False)
            return None
        parts = split_stem(name[:-10])
        metadata = f"{path}{os.sep}METADATA"
        reason = hint = None
        try:
            if self.files.size_bytes(metadata) == 0:
                reason = "its METADATA is empty"
            elif parts is None:
                parts = read_name_and_version(metadata, self.files)
                if parts is None:
                    reason = "its METADATA states no name or no version"
        except FileNotFoundError:
            reason = "it has no METADATA"
        except OSError as error:
            reason, hint = f"its METADATA could not be read: {error.strerror}", ASK_OWNER
        if reason is not None or parts is None:
            guess = canonical_name((parts or split_stem(name[:-10]) or (name[:-10].partition("-")[0],))[0])
            self.skip(
                path, f"not a sound installation of {guess}: {reason}", hint or f"{_REINSTALL} {guess}", lost=False
            )
            broken.append((guess, path))
            return None
        more: dict[str, str] = {}
        if self.files.exists(f"{path}{os.sep}direct_url.json"):
            more = self._read_details(path)
        return Package(canonical_name(parts[0]), parts[1], Source(path), details=more)

    def _read_details(self, path: str) -> dict[str, str]:
        more = {}
        try:
            text = self.files.read_text(os.path.join(path, "direct_url.json"))
        except OSError:
            text = ""
        match = re.search(_URL, text)
        if match is not None:
            if "editable" in text and re.search(_EDITABLE, text) is not None:
                more["editable"] = _path_of(match[1])
            else:
                more["direct_url"] = redact(match[1])
            if (vcs := re.search(_VCS, text)) is not None:
                more["vcs"] = vcs[1]
                if (commit := re.search(_COMMIT, text)) is not None:
                    more["commit"] = commit[1]
            elif '"dir_info"' in text and "editable" not in more:
                more["source"] = "directory"
        return more

    def _read_egg_info(self, folder: str, name: str, broken: list[tuple[str, str]]) -> Package | None:
        path = f"{folder}{os.sep}{name}"
        parts = split_egg_stem(name[:-9])
        if parts is None:
            try:
                metadata = os.path.join(path, "PKG-INFO") if self.files.is_directory(path) else path
                parts = read_name_and_version(metadata, self.files)
            except OSError:
                parts = None
        if parts is None:
            guess = canonical_name(name[:-9].partition("-")[0])
            self.skip(path, f"states no name or no version of {guess}", f"{_REINSTALL} {guess}", lost=False)
            broken.append((guess, path))
            return None
        return Package(canonical_name(parts[0]), parts[1], Source(path))

    def _read_egg(self, path: str) -> None:
        parts = split_egg_stem(os.path.basename(path)[:-4])
        if parts is None:
            self.skip(path, "is an egg whose name does not tell its version", None)
            return
        package = Package(canonical_name(parts[0]), parts[1], Source(path))
        self._take(path, {package.name: [package]})

    def _take(self, folder: str, found: dict[str, list[Package]]) -> None:
        """Add what a directory holds; directories that came before win."""
        for name, packages in found.items():
            if len(packages) > 1:
                packages = self._report_duplicates(folder, name, packages)  # noqa: PLW2901 (the same, ordered)
            if name not in self.packages:
                self.packages[name] = packages[0]
                self.folders[name] = folder

    def _report_duplicates(self, folder: str, name: str, packages: list[Package]) -> list[Package]:
        """Report several sets of metadata of one distribution, and put the one that describes the files first."""
        dist_infos = [package for package in packages if package.source.path.lower().endswith(".dist-info")]
        versions = {package.version for package in packages}
        if len(dist_infos) < 2 and len(versions) == 1:
            return dist_infos + [package for package in packages if package not in dist_infos]
        ordered = sorted(packages, key=self._age)
        why = "the files written last"
        if name in VERSION_FILES:
            file = self._version_file(name, folder, ordered[0])
            stated = file.version if file is not None else None
            agreeing = [
                package for package in ordered if stated and package.version and same_version(stated, package.version)
            ]
            if agreeing:
                ordered.sort(key=lambda package: package not in agreeing)
                why = "what its version file says"
        detail = " and ".join(str(package.version) for package in ordered)
        detail += f" are both recorded in one directory; {ordered[0].version} is taken, {why}"
        self.damage.append(Damage("duplicated", name, detail, tuple(package.source for package in ordered)))
        self.copies[name] = ordered
        return ordered

    def _follow_pth(self, folder: str, name: str) -> None:
        path = os.path.join(folder, name)
        try:
            text = self.files.read_text(path, _PTH_CHARACTERS + 1)
        except OSError as error:
            self.skip(path, f"could not be read: {error.strerror}", ASK_OWNER)
            return
        if len(text) > _PTH_CHARACTERS:
            self.skip(path, f"is longer than {_PTH_CHARACTERS:,} characters; the rest is not read", None)
        runs_code = False
        for line in text[:_PTH_CHARACTERS].removeprefix("\ufeff").splitlines():
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            if line.startswith(("import ", "import\t")):
                runs_code = True
                continue
            self.followed += 1
            if self.followed > _PTH_DIRECTORIES:
                reason = f"the .pth files here name more than {_PTH_DIRECTORIES:,} directories; the rest is not read"
                self.skip(path, reason, None)
                break
            target = os.path.abspath(os.path.join(folder, line.rstrip()))
            if self.files.exists(target):
                self.read_folder(target, follow=False)
        if runs_code:
            self.code.append(path)

    def resolve_links(self) -> None:
        """Read the source trees that ``.egg-link`` files name (``setup.py develop``).

        What one names can be imported without its metadata, too (``git clean`` deletes that): then its release is unknown.
        """
        trees: dict[str, list[Package]] = {}
        for folder, name in self.links:
            path = os.path.join(folder, name)
            own = canonical_name(name[: -len(".egg-link")])
            target = ""
            try:
                line = self.files.read_text(path).partition("\n")[0]
                target = os.path.abspath(os.path.join(folder, line.strip()))
                if target not in trees:
                    trees[target] = self._read_tree(target)
            except OSError as error:
                self.skip(path, f"the source tree it names could not be read: {error.strerror}", None, lost=False)
                if isinstance(error, FileNotFoundError):  # nothing can be imported from it
                    continue
            for package in trees.get(target, ()):
                known = self.packages.get(package.name)
                if known is None or known.source == package.source:
                    self.packages[package.name] = package._replace(details={"editable": target})
                    self.folders[package.name] = target
            if own not in self.packages:
                if target in trees:
                    self.skip(path, f"the source tree it names holds no metadata of {own}", None, lost=False)
                self.packages[own] = Package(own, None, Source(path), specifier="")
                self.folders[own] = target or folder

    def _read_tree(self, folder: str) -> list[Package]:
        """Read the metadata of a source tree.

        Raises:
            OSError: it cannot be listed.
        """
        broken: list[tuple[str, str]] = []
        names = [name for name in self.files.list_names(folder) if name.lower().endswith(".egg-info")]
        found = [self._read_egg_info(folder, name, broken) for name in names]
        unknown = [Package(name, None, Source(path), specifier="") for name, path in broken]
        return [package for package in found if package is not None] + unknown

    def read_conda(self, folders: tuple[str, ...]) -> dict[str, CondaPackage]:
        """Read conda's records, the first directory winning."""
        conda: dict[str, CondaPackage] = {}
        if not folders:
            return conda
        from compatcheck.collectors.python.conda_records import read_conda_meta  # noqa: PLC0415 (conda prefixes only)

        for folder in folders:
            try:
                conda = {**read_conda_meta(folder, self.files), **conda}
            except OSError as error:
                self.skip(folder, f"could not be listed: {error.strerror}", ASK_OWNER, lost=False)
        return conda

    def check_version_files(self) -> dict[str, VersionFile]:
        """Compare metadata with the version files of the packages that matter most."""
        files = {}
        for name in VERSION_FILES:
            package = self.packages.get(name)
            if package is None:
                continue
            file = self._version_file(name, self.folders[name], package)
            if file is None:
                continue
            files[name] = file
            if (
                file.version is not None
                and package.version is not None
                and not same_version(file.version, package.version)
            ):
                detail = f"metadata says {package.version}, its own version file {file.version}"
                self.damage.append(Damage("mismatched", name, detail, (package.source, Source(file.path))))
        return files

    def read_torch(self, file: VersionFile | None, conda: dict[str, CondaPackage]) -> TorchBuild | None:
        """Read what torch was built for into facts; a torch without metadata (an unpacked build) is found too."""
        if "torch" not in self.packages:
            for folder in self._read:
                if self.files.exists(os.path.join(folder, "torch", "version.py")):
                    file = self._version_file("torch", folder, None)
                    if file is not None and file.version is not None:
                        self.packages["torch"] = Package("torch", file.version, Source(file.path))
                        self.folders["torch"] = folder
                        break
        package = self.packages.get("torch")
        if package is None:
            return None
        if file is None:
            self.skip(
                package.source.path,
                "torch's own version file was not found",
                f"{_REINSTALL} torch, unless it is built in place",
                lost=False,
            )
        torch = read_torch_build(package, file, conda)
        if torch.build is not None:
            self.facts["runtime.torch_build"] = (torch.build, torch.source)
            self.facts["runtime.torch_cuda"] = (torch.cuda, torch.source)
        forge = find_conda_forge(package, conda)
        if forge is not None:
            self.facts[CONDA_FORGE] = (True, forge)
        abi = read_cxx11_abi(self.folders["torch"], self.files)
        if abi is not None:
            self.facts["runtime.cxx11_abi"] = (abi[0], Source(abi[1]))
        return torch

    def _version_file(self, name: str, folder: str, package: Package | None) -> VersionFile | None:
        try:
            return read_version_file(name, folder, package, self.files)
        except OSError as error:
            path = os.path.join(folder, *VERSION_FILES[name][0].split("/"))
            self.skip(path, f"could not be read: {error.strerror}", ASK_OWNER, lost=False)
            return None

    def _age(self, package: Package) -> float:
        try:
            return -self.files.modified(package.source.path)
        except OSError:
            return 0.0

    def skip(self, path: str, reason: str, hint: str | None, *, lost: bool = True) -> None:
        """Record what could not be used; ``lost`` when distributions may lie there: then the environment was not read whole."""
        self.skipped.append(Skipped(Source(path), reason, hint, named=lost))
        self.complete = self.complete and not lost


def _path_of(url: str) -> str:
    """Return the directory a ``file:`` URL names."""
    path = url.removeprefix("file://")
    if "%" in path:
        from urllib.parse import unquote  # noqa: PLC0415 (few paths need it)

        path = unquote(path)
    # file:///C:/src
    return path[1:] if re.match(r"/[A-Za-z]:", path) else path
