"""One stage of a Dockerfile: the packages that are there, and what installs and uninstalls make of them, as pip would."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from compatcheck.collectors.conda.packages import find_written_over
from compatcheck.collectors.python.pinned_build import read_index
from compatcheck.core.environment import TOGETHER, Package
from compatcheck.core.markers import canonical_name, describe_machine
from compatcheck.core.requirement import combine
from compatcheck.core.source import Skipped
from compatcheck.core.versions import compile_specifier, contains, parse_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compatcheck.collectors.dockerfile.install_commands import Install
    from compatcheck.core.environment import Damage
    from compatcheck.core.requirement import Requirement
    from compatcheck.core.source import Source

CHECK_IMAGE = "check the built image: docker save IMAGE | compatcheck image -"
_PINS_TORCH = frozenset(
    {"vllm", "sglang", "xformers", "torchvision", "torchaudio", "lmdeploy", "torchtext", "torchao-nightly"}
)
"""Distributions that require one torch exactly: installing one replaces another torch."""
_ENGINES = frozenset({"vllm", "sglang", "lmdeploy"})
_MOVED_BY_ENGINES = frozenset(
    {"transformers", "tokenizers", "xformers", "triton", "ray", "numpy", "torchvision", "torchaudio"}
)
"""What an inference engine requires closely, so that installing it may replace what is there."""
_INDEX_VARIABLES = (
    "PIP_EXTRA_INDEX_URL",
    "PIP_INDEX_URL",
    "UV_EXTRA_INDEX_URL",
    "UV_INDEX",
    "UV_INDEX_URL",
    "UV_DEFAULT_INDEX",
)
"""Variables that pip and uv take an index from."""


class Stage:
    """One ``FROM`` and what has been done to it."""

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.packages: dict[str, Package] = {}
        self.facts: dict[str, tuple[object, Source]] = {}
        self.python: str | None = None
        self.variables: dict[str, str] = {}
        self.arguments: dict[str, str | None] = {}
        self.directory = "/"
        self.is_posix = True
        """Whether ``RUN`` is read by a shell of this kind; ``SHELL`` may name another."""
        self.is_cut_off = False
        """Whether some of what it runs was not read, for there is too much of it, and that was said."""
        self.copies: list[tuple[str, str]] = []
        """Source in the context → destination; a destination that ends in a slash is a directory."""
        self.written: dict[str, str | None] = {}
        """What commands leave in files that they write or change, by absolute path; None where nobody can tell."""
        self.skipped: list[Skipped] = []
        self.notes: list[str] = []
        self.damage: dict[str, Damage] = {}
        """What pip wrote over packages of conda, by package."""
        self.contradictions: list[Damage] = []
        """Requirements of one command that exclude each other: no such image is built."""
        self.commands = 0
        """Commands that installed something, so far."""

    def skip(self, source: Source, reason: str, hint: str | None = CHECK_IMAGE) -> None:
        """Note what cannot be told; a command whose installs are not read counts where a person named the file."""
        self.skipped.append(Skipped(source, reason, hint, named=source.key == "RUN"))

    def value(self, name: str) -> str | None:
        """Return what a variable holds in this stage."""
        if name in self.variables:
            return self.variables[name]
        return self.arguments.get(name)

    def refer(self, source: Source, text: str) -> None:
        """Say that another file has to be checked beside this one: a walk meets it, who names this one alone does not."""
        self.notes.append(text)
        hint = "name it beside the Dockerfile, or check the directory"
        self.skipped.append(Skipped(source, text, hint, passes=True, elsewhere=True))

    def install(self, wanted: list[Requirement], install: Install) -> None:
        """Apply one install to what is there."""
        variables = [install.settings.get(name) or self.value(name) or "" for name in _INDEX_VARIABLES]
        index = next((found for found in map(_index_of, (*reversed(install.indexes), *variables)) if found), None)
        backend = install.backend or install.settings.get("UV_TORCH_BACKEND") or self.value("UV_TORCH_BACKEND")
        if backend and install.is_uv and re.fullmatch(r"cu\d{3}|cpu", backend):
            index = f"/whl/{backend}"
        combined = combine(wanted, describe_machine(None))
        self.commands += 1
        together = install.kind == "pip" and install.dependencies and len(combined.packages) > 1
        for name, package in combined.packages.items():
            details = {**package.details, TOGETHER: str(self.commands)} if together else package.details
            details = {**details, "conda": name} if install.kind == "conda" else details
            self.put(name, package._replace(details=details), install, index if name == "torch" else None)
        self.notes += combined.notes
        if install.kind == "pip" and install.certain:
            self.contradictions += combined.damage
        if install.dependencies and _ENGINES & set(combined.packages):
            for name in _MOVED_BY_ENGINES & set(self.packages):
                asked = combined.packages.get(name)
                if asked is None or (asked.version is None and not asked.specifier and self.packages[name].version):
                    self.packages[name] = _unsure(self.packages[name])
        if install.dependencies and "torch" not in combined.packages:
            self.replace_torch(combined.packages, install)

    def uninstall(self, install: Install) -> None:
        """Take away what a command removes, where it runs for certain."""
        for word in install.requirements if install.certain else ():
            name = canonical_name(word.text or "")
            self.packages.pop(name, None)
            if name == "torch":
                self.facts.pop("runtime.torch_build", None)
                self.facts.pop("runtime.torch_cuda", None)

    def put(self, name: str, package: Package, install: Install, index: str | None) -> None:
        """Install one distribution over what is there."""
        present = self.packages.get(name)
        if install.kind == "conda":
            self.damage.pop(name, None)
        if present is not None and not install.upgrade and _satisfies(present, package):
            return
        if index is not None:
            package = package._replace(details={**package.details, "index": index})
        if not install.certain:
            package = _either(present, package)
        elif present is not None and "conda" in present.details and install.kind == "pip":
            written = find_written_over(name, present, package)
            if written is not None:
                self.damage[name] = written
        self.packages[name] = package
        if name == "torch":
            self.forget_build(package, install.certain)

    def forget_build(self, torch: Package, certain: bool) -> None:  # noqa: FBT001 (beside its use)
        """Drop what the base image said of torch's build once another torch is installed, unless the pins say the same."""
        if (
            certain
            and torch.details.get("index")
            and read_index(torch.details["index"]) is not None
            and torch.version is None
        ):
            build, cuda = read_index(torch.details["index"]) or (None, None)
            self.facts["runtime.torch_build"] = (build, torch.source)
            self.facts["runtime.torch_cuda"] = (cuda, torch.source)
            return
        for fact in ("runtime.torch_build", "runtime.torch_cuda"):
            if fact in self.facts and self.facts[fact][1].key != "RUN":
                self.facts.pop(fact)

    def replace_torch(self, installed: Mapping[str, Package], install: Install) -> None:
        """Follow distributions that require one torch exactly: installing them replaces another one that is there."""
        torch = self.packages.get("torch")
        pinning = [package for name, package in installed.items() if name in _PINS_TORCH]
        if not pinning or install.kind == "conda":
            return
        package = pinning[0]
        minor = _torch_of(package)
        if torch is None and minor is None:
            return
        if torch is not None and torch.version is not None and ".".join(torch.version.split(".")[:2]) == minor:
            return
        place = package.source._replace(key=f"with {package.name} {package.version or ''}".rstrip())
        brought = Package("torch", None, place, "" if minor is None else f"=={minor}.*")
        self.packages["torch"] = brought if install.certain else _either(torch, brought)
        self.forget_build(brought, install.certain)
        if torch is not None:
            present = torch.version or "the one there"
            self.notes.append(f"{package.name} requires a torch of its own and may replace {present}")


def _torch_of(package: Package) -> str | None:
    if package.version is None:
        return None
    from compatcheck.rules.locate import open_builtin  # noqa: PLC0415 (few installs ask)

    rows = (open_builtin().section("tables/torch-minor-of-binaries") or {}).get(package.name) or {}
    found = rows.get(package.version.partition("+")[0])
    return found if isinstance(found, str) else None


def _satisfies(present: Package, wanted: Package) -> bool:
    """Tell whether pip would leave what is there: its release fits, or nothing is asked of it."""
    if wanted.details.get("direct_url"):
        return False
    if wanted.version is not None:
        mine, asked = parse_version(present.version or ""), parse_version(wanted.version)
        return mine is not None and asked is not None and (asked == mine or str(asked) == mine.public)
    if not wanted.specifier:
        return True
    return present.version is not None and contains(compile_specifier(wanted.specifier), present.version) != "no"


def _unsure(package: Package) -> Package:
    """Mark a release that another distribution's requirements may have replaced."""
    return package._replace(is_optional=True)


def _either(present: Package | None, package: Package) -> Package:
    """Describe an install that may not run: what is there, or what it would install."""
    if present is None:
        return _unsure(package)
    ranges = [f"=={entry.version}" if entry.version else entry.specifier or "" for entry in (present, package)]
    specifier = "" if "" in ranges else " || ".join(dict.fromkeys(ranges))
    return _unsure(Package(package.name, None, package.source, specifier, package.details))


def _index_of(address: str) -> str | None:
    return address if read_index(address) is not None else None
