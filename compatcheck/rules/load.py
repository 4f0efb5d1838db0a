"""Read rule files strictly: every problem names file, line and key."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from compatcheck.core.errors import RuleError
from compatcheck.core.markers import canonical_name
from compatcheck.core.source import Source
from compatcheck.rules import rule as model
from compatcheck.rules.strict_yaml import StrictFile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_KEYS = {field.name for field in fields(model.Rule)} - {"id", "path", "clauses", "comparisons"} | {"affected"}
_MOST = 100_000
"""Files and folders below a directory of rules."""
_REQUIRED = ("title", "kind", "status", "affected", "impact", "confidence", "what", "why", "references", "examples")


def rule_files(directory: Path) -> list[Path]:
    """Return the rule files below a directory, sorted; folders and files that start with ``_`` hold data, save ``_stack``.

    Raises:
        RuleError: a folder cannot be listed, a file leads out of the directory, or there are far more than rules.
    """
    return sorted(
        path
        for path in _walk(directory)
        if all(not part.startswith("_") or part == "_stack" for part in path.relative_to(directory).parts)
    )


def _walk(directory: Path) -> Iterator[Path]:
    """Yield the YAML files below a directory, data among them; a policy may name a directory that is none of rules."""

    def refuse(error: OSError) -> None:
        raise RuleError(f"could not be listed: {error.strerror}", source=Source(error.filename)) from None

    from pathlib import Path  # noqa: PLC0415 (3 ms; only for directories)

    root, seen = os.path.join(os.path.realpath(directory), ""), 0
    for folder, folders, names in os.walk(directory, onerror=refuse):
        seen += len(folders) + len(names)
        if seen > _MOST:
            msg = f"holds more than {_MOST:,} files and folders"
            raise RuleError(msg, source=Source(str(directory)), hint="name the directory that holds PACKAGE/SLUG.yaml")
        for path in (Path(folder, name) for name in (*folders, *names) if name.endswith(".yaml")):
            if path.is_symlink() and not os.path.realpath(path).startswith(root):
                raise RuleError("leads out of the directory of rules", source=Source(str(path)), hint="copy the file")
            yield path


def load_rules(directory: Path) -> list[model.Rule]:
    """Load every rule below a directory.

    Raises:
        RuleError: the first file that is not a rule.
    """
    return [load_rule(path, directory) for path in rule_files(directory)]


def load_rule(path: Path, directory: Path) -> model.Rule:
    """Load one rule file; ``directory`` is the root its id is relative to.

    Raises:
        RuleError: naming file, line and key.
    """
    return _Reader(path).rule(path.relative_to(directory).with_suffix("").as_posix())


class _Reader(StrictFile):
    """Checks the shape of one file while converting it."""

    def rule(self, rule_id: str) -> model.Rule:
        data = self.mapping(self.data)
        self.known(data, _KEYS)
        for key in _REQUIRED:
            if key not in data:
                raise self.error(f"missing key {key!r}")
        status = self.choice(data, "status", model.STATUSES)
        if status != "active" and not data.get("reason"):
            raise self.error(f"a {status} rule needs `reason`", "status")
        evidence, comparisons = self.evidence(data.get("evidence") or [])
        return model.Rule(
            id=rule_id,
            path=self.path,
            title=self.text(data, "title"),
            kind=self.choice(data, "kind", model.KINDS),
            status=status,
            row=self.optional_text(data, "row"),
            clauses=tuple(self.clauses(data["affected"])),
            unverified=self.specifiers(data.get("unverified") or {}, "unverified"),
            checked_through=self.specifiers(data.get("checked_through") or {}, "checked_through"),
            when=self.optional_text(data, "when"),
            unless=self.optional_text(data, "unless"),
            impact=self.impact(data["impact"]),
            confidence=self.choice(data, "confidence", model.CONFIDENCES),
            verifiable=tuple(self.choices(data, "verifiable", model.BACKENDS)),
            what=self.text(data, "what"),
            why=self.text(data, "why"),
            known_problems=self.optional_text(data, "known_problems"),
            debunks=tuple(self.texts(data, "debunks")),
            remedies=tuple(self.remedies(data.get("remedies") or [])),
            references=tuple(self.references(data["references"])),
            probe=self.probe(data),
            evidence=evidence,
            comparisons=comparisons,
            examples=self.examples(data["examples"]),
            former_ids=tuple(self.texts(data, "former_ids")),
            reason=self.optional_text(data, "reason"),
        )

    def known(self, data: Mapping[str, Any], keys: set[str], *where: str | int) -> None:
        for key in data:
            if key not in keys:
                from difflib import get_close_matches  # noqa: PLC0415 (only on the way to an error)

                near = get_close_matches(key, sorted(keys), n=1)
                raise self.error(
                    f"unknown key {key!r}",
                    *where,
                    key,
                    hint=f"did you mean {near[0]!r}?" if near else None,
                )

    def text(self, data: Mapping[str, Any], key: str, *where: str | int) -> str:
        value = data.get(key)
        if not isinstance(value, str) or not value.strip():
            raise self.error("expected text", *where, key)
        return value.strip()

    def optional_text(self, data: Mapping[str, Any], key: str, *where: str | int) -> str | None:
        return None if data.get(key) is None else self.text(data, key, *where)

    def texts(self, data: Mapping[str, Any], key: str) -> list[str]:
        values = self.sequence(data.get(key) or [], key)
        for index, value in enumerate(values):
            if not isinstance(value, str):
                raise self.error("expected text", key, index)
        return values

    def choice(self, data: Mapping[str, Any], key: str, allowed: tuple[str, ...], *where: str | int) -> str:
        value = data.get(key)
        if value not in allowed:
            raise self.error(f"{value!r} is not one of {', '.join(allowed)}", *where, key)
        return str(value)

    def choices(self, data: Mapping[str, Any], key: str, allowed: tuple[str, ...]) -> Iterator[str]:
        for index, value in enumerate(self.sequence(data.get(key) or [], key)):
            if value not in allowed:
                raise self.error(f"{value!r} is not one of {', '.join(allowed)}", key, index)
            yield value

    def specifiers(self, value: Any, *where: str | int) -> dict[str, str]:  # noqa: ANN401
        result = {}
        for name, specifier in self.mapping(value, *where).items():
            if not isinstance(specifier, str):
                raise self.error("versions must be quoted text", *where, name)
            if canonical_name(name) != name:
                raise self.error(
                    f"{name!r} is not how a distribution is written",
                    *where,
                    name,
                    hint=f"write {canonical_name(name)!r}, or nothing ever matches it",
                )
            result[name] = specifier.strip()
        return result

    def clauses(self, value: Any) -> Iterator[model.Clause]:  # noqa: ANN401
        if isinstance(value, dict):
            yield self.clause(value, "affected")
            return
        if not self.sequence(value, "affected"):
            raise self.error("needs at least one clause; write {} for a rule that depends on no package", "affected")
        for index, item in enumerate(value):
            yield self.clause(self.mapping(item, "affected", index), "affected", index)

    def clause(self, data: Mapping[str, Any], *where: str | int) -> model.Clause:
        packages = {key: value for key, value in data.items() if key != "when"}
        return model.Clause(packages=self.specifiers(packages, *where), when=self.optional_text(data, "when", *where))

    def impact(self, value: Any) -> model.Impact:  # noqa: ANN401
        data = self.mapping(value, "impact")
        self.known(data, {"effect", "memory", "scope", "phase", "bytes", "low", "high", "passing"}, "impact")
        expected = None if data.get("bytes") is None else str(data["bytes"])
        if expected is None and any(data.get(name) is not None for name in ("low", "passing")):
            raise self.error("`low` and `passing` need `bytes`", "impact")
        return model.Impact(
            effect=self.choice(data, "effect", model.EFFECTS, "impact"),
            memory=self.choice(data, "memory", model.MEMORIES, "impact"),
            scope=self.choice(data, "scope", model.SCOPES, "impact"),
            phase=self.choice(data, "phase", model.PHASES, "impact"),
            expected=expected,
            low=None if data.get("low") is None else str(data["low"]),
            high=None if data.get("high") is None else str(data["high"]),
            passing=None if data.get("passing") is None else str(data["passing"]),
        )

    def remedies(self, value: Any) -> Iterator[model.Remedy]:  # noqa: ANN401
        for index, item in enumerate(self.sequence(value, "remedies")):
            where = ("remedies", index)
            data = self.mapping(item, *where)
            self.known(data, {*model.REMEDY_VERBS, "safety", "when", "done", "unseen"}, *where)
            verbs = [verb for verb in model.REMEDY_VERBS if verb in data and verb != "note"] or ["note"]
            if len(verbs) != 1 or (verbs == ["note"] and "note" not in data):
                raise self.error(f"needs exactly one of {', '.join(model.REMEDY_VERBS)}", *where)
            if sum(key in data for key in ("done", "unseen")) > (verbs == ["note"]):
                raise self.error("`done` or `unseen`, one of them, is for a note that stands by itself", *where)
            target = {} if verbs == ["note"] else self.mapping(data[verbs[0]], *where, verbs[0])
            for name, set_to in target.items():
                if isinstance(set_to, list | dict):
                    raise self.error(
                        "needs one value, no list or mapping: no plan writes those", *where, verbs[0], name
                    )
            yield model.Remedy(
                verb=verbs[0],
                target=target,
                safety=self.choice(data, "safety", model.SAFETIES, *where),
                note=self.optional_text(data, "note", *where),
                when=self.optional_text(data, "when", *where),
                done=None if data.get("done") is None else self.mapping(data["done"], *where, "done"),
                unseen=self.optional_text(data, "unseen", *where),
            )

    def references(self, value: Any) -> Iterator[model.Reference]:  # noqa: ANN401
        for index, item in enumerate(self.sequence(value, "references")):
            where = ("references", index)
            data = self.mapping(item, *where)
            self.known(data, {"type", "url", "date"}, *where)
            url = self.text(data, "url", *where)
            if not url.startswith("https://"):
                raise self.error("expected an https URL", *where, "url")
            kind = self.choice(data, "type", model.REFERENCE_TYPES, *where)
            yield model.Reference(type=kind, url=url, date=self.optional_text(data, "date", *where))

    def probe(self, data: Mapping[str, Any]) -> model.ProbeUse | None:
        """Read a name, or ``{name, parameters, metric, baseline}``."""
        value = data.get("probe")
        if not isinstance(value, dict):
            name = self.optional_text(data, "probe")
            return None if name is None else model.ProbeUse(name=name, parameters={})
        self.known(value, {"name", "parameters", "metric", "baseline"}, "probe")
        return model.ProbeUse(
            name=self.text(value, "name", "probe"),
            parameters=self.named(value, "parameters", "probe"),
            metric=self.optional_text(value, "metric", "probe"),
            baseline=None if value.get("baseline") is None else self.named(value, "baseline", "probe"),
        )

    def evidence(self, value: Any) -> tuple[tuple[str, ...], tuple[model.Comparison, ...]]:  # noqa: ANN401
        """Read paths, and ``{metric, suspect, baseline, facts, besides}``; return all files and the comparisons."""
        files: dict[str, None] = {}
        comparisons = []
        for index, item in enumerate(self.sequence(value, "evidence")):
            where = ("evidence", index)
            if isinstance(item, str):
                files[item] = None
                continue
            data = self.mapping(item, *where)
            self.known(data, {"metric", "suspect", "baseline", "facts", "besides"}, *where)
            comparison = model.Comparison(
                metric=self.text(data, "metric", *where),
                suspect=self.selection(data.get("suspect"), *where, "suspect"),
                baseline=None if data.get("baseline") is None else self.selection(data["baseline"], *where, "baseline"),
                facts=self.named(data, "facts", *where),
                besides=tuple(self.texts(data, "besides")),
            )
            comparisons.append(comparison)
            for selection in filter(None, (comparison.suspect, comparison.baseline)):
                files[selection.file] = None
        return tuple(files), tuple(comparisons)

    def selection(self, value: Any, *where: str | int) -> model.EvidenceSelection:  # noqa: ANN401
        """Read a path, or ``{file, versions, parameters, metric}``."""
        if isinstance(value, str):
            return model.EvidenceSelection(file=value, versions={}, parameters={})
        data = self.mapping(value, *where)
        self.known(data, {"file", "versions", "parameters", "metric"}, *where)
        return model.EvidenceSelection(
            file=self.text(data, "file", *where),
            versions=self.specifiers(data.get("versions") or {}, *where, "versions"),
            parameters=self.named(data, "parameters", *where),
            metric=self.optional_text(data, "metric", *where),
        )

    def named(self, data: Mapping[str, Any], key: str, *where: str | int) -> dict[str, Any]:
        """Return an optional mapping."""
        return {} if data.get(key) is None else self.mapping(data[key], *where, key)

    def examples(self, value: Any) -> model.Examples:  # noqa: ANN401
        data = self.mapping(value, "examples")
        self.known(data, {"match", "no_match", "unknown"}, "examples")
        parts: dict[str, tuple[Mapping[str, Any], ...]] = {}
        for key in ("match", "no_match", "unknown"):
            items = self.sequence(data.get(key) or [], "examples", key)
            parts[key] = tuple(self.mapping(item, "examples", key, index) for index, item in enumerate(items))
        return model.Examples(**parts)
