"""What expressions can ask about one role of one subject: facts, packages, variables and tables."""

from __future__ import annotations

from functools import lru_cache

from compatcheck.core.environment import Environment, Package
from compatcheck.core.facts import TRAITS
from compatcheck.core.source import Source
from compatcheck.core.versions import compile_specifier, contains, exact_version
from compatcheck.resolution.imported import FRAMEWORK
from compatcheck.rules.expression import Unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Literal

    from compatcheck.core.facts import Fact
    from compatcheck.resolution.gaps import Opened
    from compatcheck.rules.database import RuleSet

    Verdict = Literal["yes", "no", "some", "boundary", "unknown"]
    """Whether a package lies in a range: certainly, certainly not, for some releases a requirement allows, a build whose number
    does not tell, or not known."""

COMPONENT_FACTS = {
    "cuda": "runtime.torch_cuda",
    "cudnn": "runtime.cudnn",
    "nccl": "runtime.nccl",
    "cublas": "runtime.cublas",
    "driver": "hardware.driver",
    "python": "runtime.python",
}
"""Components of ``affected`` and the facts that hold their versions."""

STATED = {"set", "script", "configuration", "model", "declared", "installed", "reported", "measured"}
"""Origins that mean a person, a file, a model's file or the machine itself said so, as opposed to a default or a derivation."""


def version_need(package: str) -> str:
    """Name what would tell a package's version: the fact of a component, or ``version of <package>``."""
    return COMPONENT_FACTS.get(package) or f"version of {package}"


@lru_cache(maxsize=2048)  # conditions ask for the same names again and again
def _unknown(name: str) -> Unknown:
    return Unknown(frozenset((name,)))


def _is_stated(fact: Fact) -> bool:
    return fact.origin in STATED


class FactScope:
    """The names an expression can use, over facts that may still be growing."""

    def __init__(
        self,
        facts: Mapping[str, Fact],
        environment: Environment | None,
        rules: RuleSet,
        opened: Opened | None = None,
        others: Mapping[str, Mapping[str, Fact]] | None = None,
        *,
        growing: bool = False,
    ) -> None:
        """Take live mappings; nothing is copied.

        Args:
            facts: of one role.
            environment: what is installed.
            rules: tables and releases.
            opened: the facts that something not read may state.
            others: facts of the roles that are resolved already, by role.
            growing: while defaults are still added, none of them counts as declared: which come later nobody knows.
        """
        self.facts = facts
        self.environment = environment
        self.rules = rules
        self.opened = opened
        self.others = others or {}
        self.growing = growing

    def value(self, name: str) -> object:
        """Return the value of a fact, or Unknown; what would tell a trait of a program that nobody knows is its name."""
        fact = self.facts.get(name)
        if fact is not None:
            return fact.value
        return _unknown(FRAMEWORK if name.startswith(TRAITS) and FRAMEWORK not in self.facts else name)

    def declared(self, name: str) -> object:
        """Tell whether anything decides the fact, the program's own code included; Unknown where what was not read may."""
        fact = self.facts.get(name)
        if fact is None and self.opened is not None and self.opened.holds(name):
            return Unknown(frozenset((name,)))
        if fact is None or not self.growing:
            return fact is not None
        return _is_stated(fact) or name == FRAMEWORK or name.startswith(TRAITS)

    def stated(self, name: str) -> object:
        """Tell whether a person, a file or the machine stated the fact: what a program does by itself is nobody's statement."""
        declared = self.declared(name)
        return _is_stated(self.facts[name]) if declared is True else declared

    def package(self, name: str) -> Package | None:
        """Return the distribution or component of this name; a fact such as ``runtime.cudnn`` stands in for its component."""
        fact = self.facts.get(COMPONENT_FACTS.get(name, ""))
        if fact is not None:
            version = None if fact.value is None else str(fact.value)
            source = fact.sources[0] if fact.sources else Source(fact.name)
            return Package(name, version, source, ABSENT if version is None else None)
        environment = self.environment
        if environment is None:
            return None
        return environment.packages.get(name) or environment.components.get(name)

    def _absent(self, name: str, package: Package | None) -> bool | None:
        """Tell whether a package is known to be absent; None when nothing is known about it."""
        if package is not None:
            return package.version is None and package.specifier == ABSENT
        environment = self.environment
        if environment is None or not environment.complete or name in COMPONENT_FACTS or name in environment.unlisted:
            return None
        return True

    def in_range(self, name: str, bounds: Any) -> Verdict:  # noqa: ANN401 (compiled bounds)
        """Judge a package against compiled bounds, ``"present"`` or ``"absent"``."""
        package = self.package(name)
        if package is not None and package.version is not None and not isinstance(bounds, str):
            held = self.rules.contains(bounds, package.version)
            return "some" if held == "yes" and package.is_optional else held
        absent = self._absent(name, package)
        if isinstance(bounds, str) and package is not None and package.is_optional:
            return "some"
        if bounds == "present":
            return "unknown" if absent is None and package is None else "no" if absent else "yes"
        if bounds == "absent":
            return "yes" if absent else "no" if package is not None else "unknown"
        if package is None or absent:
            return "no" if absent else "unknown"
        judged = self.rules.judge(bounds, name, package.specifier or "")
        verdict: Verdict = "yes" if judged == "all" else "no" if judged == "none" else judged
        if verdict == "yes" and package.is_optional:
            return "some"
        return verdict

    def installed(self, package: str, bounds: Any) -> object:  # noqa: ANN401 (compiled bounds, or a specifier)
        """Return whether a package in this range is there, as an expression's ``installed()``."""
        if isinstance(bounds, str) and bounds not in {"present", "absent"}:
            bounds = compile_specifier(bounds)
        return self._decided(self.in_range(package, bounds), self.package_need(package))

    def package_need(self, name: str) -> str:
        """Name what would tell whether a package is in a range: its version, or the choices that bring the one that is known."""
        package = self.package(name)
        if package is None or package.version is None or not package.brought_by:
            return version_need(name)
        choices = [f"--{choice}" for choice in package.brought_by[:_SHOWN_CHOICES]]
        more = [] if len(package.brought_by) <= _SHOWN_CHOICES else ["others"]
        return f"{name} (comes with {' or '.join(choices + more)})"

    def own_requirement(self, package: str, dependency: str) -> Fact | None:
        """Return what the metadata of an installed package requires of a dependency, None when it does not tell."""
        environment = self.environment
        found = environment.packages.get(package) if environment is not None and environment.complete else None
        if found is None:
            return None
        from compatcheck.collectors.python.requires_dist import read_own_requirements  # noqa: PLC0415 (few rules ask)

        requirements = read_own_requirements(found, dependency)
        if requirements is None:
            return None
        from compatcheck.core.facts import Fact  # noqa: PLC0415 (as above)

        value = " || ".join(requirement.specifier or ">=0" for requirement in requirements) or "nothing"
        source = Source(f"METADATA of {package} {found.version}")
        return Fact(f"{dependency} required by {package}", value, "installed", (source,))

    def metadata_refutes(self, package: str, dependency: str, bounds: Any) -> bool:  # noqa: ANN401 (compiled bounds)
        """Return whether an installed package's own metadata requires no release of a range, as ``metadata_refutes()``.

        Our pin data stands where nothing is installed or the metadata lists no requirement at all. Metadata that lists
        others and not this dependency pins nothing of it, which refutes a pin as well.
        """
        own = self.own_requirement(package, dependency)
        if own is None:
            return False
        if own.value == "nothing":
            return True
        return all(self._excludes(bounds, dependency, part) for part in str(own.value).split(" || "))

    def _excludes(self, bounds: Any, dependency: str, specifier: str) -> bool:  # noqa: ANN401 (compiled bounds)
        version = exact_version(specifier)
        if version is not None:  # a pin counts whether or not the release is in our snapshot
            return contains(bounds, version) == "no"
        return self.rules.judge(bounds, dependency, specifier) == "none"

    def version_in(self, version: str, bounds: Any) -> object:  # noqa: ANN401 (compiled bounds, or a specifier)
        """Return whether a version lies in a range, as an expression's ``version_in()``."""
        if isinstance(bounds, str):
            bounds = compile_specifier(bounds)
        return self._decided(contains(bounds, version), f"the side of a boundary {version} lies on")

    def variable(self, name: str) -> object:
        """Return an environment variable, None when known to be unset, else Unknown."""
        environment = self.environment
        if environment is not None and environment.variables is not None:
            if name in environment.variables:
                return environment.variables[name]
            if environment.variables_complete:
                return None
        return Unknown(frozenset((f"env {name}",)))

    def look_up(self, table: str, keys: tuple[object, ...]) -> object:
        """Return a table's cell; a key the table does not have is unknown."""
        try:
            return self.rules.look_up(table, keys)
        except KeyError:
            return Unknown(frozenset((f"{table}[{', '.join(map(str, keys))}]",)))

    @staticmethod
    def _decided(verdict: str, need: str) -> object:
        return True if verdict == "yes" else False if verdict == "no" else Unknown(frozenset((need,)))


_SHOWN_CHOICES = 3

ABSENT = "absent"
"""Specifier of a package that a facts file declares absent."""
