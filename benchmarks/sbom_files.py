"""Compare the components compatcheck reads in SBOMs with what the formats' own libraries read there.

    python benchmarks/sbom_files.py DIRECTORY

DIRECTORY has ``cyclonedx`` and ``spdx`` with public files, fetched and not committed, and may have ``made`` with SBOMs that
syft, cyclonedx-py or uv wrote of environments of this machine. Needs cyclonedx-python-lib and spdx-tools. All components count,
those of other languages too. A Markdown table goes to standard output, what differs to standard error.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packageurl import PackageURL

from compatcheck.collectors.sbom import cyclonedx, spdx
from compatcheck.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from compatcheck.collectors.sbom.components import SbomComponent

Listed = Counter[tuple[str, ...]]


def ours_of(components: Iterable[SbomComponent]) -> Listed:
    """Describe what compatcheck read: type, name and version of the package URL, else name and version."""
    found: Listed = Counter()
    for item in components:
        kind = item.purl.type if item.purl is not None else ""
        found[kind, item.name, item.version or ""] += 1
    return found


def _described(name: str | None, version: str | None, purls: Iterable[str]) -> tuple[str, ...] | None:
    for text in purls:
        try:
            url = PackageURL.from_string(text)
        except ValueError:
            continue
        return url.type, url.name, url.version or _stated(version)
    return None if not name else ("", name, _stated(version))


def _stated(version: str | None) -> str:
    return "" if version in {None, "", "NOASSERTION", "NONE", "None"} else str(version)


def cyclonedx_json(path: Path) -> tuple[Listed, Listed]:
    """Compare a file in JSON."""
    from cyclonedx.model.bom import Bom  # noqa: PLC0415

    components = cyclonedx.list_json(str(path)).components
    return ours_of(components), _of_bom(Bom.from_json(json.loads(path.read_text(encoding="utf-8-sig"))))


def _of_bom(bom: Any) -> Listed:  # noqa: ANN401 (cyclonedx.model.bom.Bom)
    found: Listed = Counter()
    pending = list(bom.components)
    while pending:
        item = pending.pop()
        pending += item.components
        if item.scope is not None and item.scope.value == "excluded":
            continue
        described = _described(item.name, item.version, [str(item.purl)] if item.purl else [])
        if described is not None:
            found[described] += 1
    return found


def spdx_any(path: Path) -> tuple[Listed, Listed]:
    """Compare a document of SPDX 2 in JSON."""
    listing = spdx.list_packages(str(path))
    return ours_of(listing.components), _of_spdx(path)


def _of_spdx(path: Path) -> Listed:
    found: Listed = Counter()
    from spdx_tools.spdx.parser.parse_anything import parse_file  # noqa: PLC0415

    for package in parse_file(str(path)).packages:
        purls = [item.locator for item in package.external_references if item.reference_type == "purl"]
        found[_described(package.name, package.version, purls) or ()] += 1
    return found


def reader_of(path: Path) -> tuple[str, Callable[[Path], tuple[Listed, Listed]]] | None:
    """Choose the reader of a file by its content."""
    head = path.read_bytes()[:65536]
    if b"bomFormat" in head or (b'"bom-ref"' in head and b'"components"' in head):
        return "CycloneDX JSON", cyclonedx_json
    plain = head.replace(b"\0", b"")
    is_json = plain.lstrip(b"\xff\xfe\xef\xbb\xbf \r\n\t").startswith(b"{")
    if is_json and (b"spdxVersion" in plain or b'"SPDXID"' in plain):
        return "SPDX JSON", spdx_any
    return None


def compare(path: Path, read: Callable[[Path], tuple[Listed, Listed]]) -> tuple[Counter[str], str]:
    """Compare one file; return counts and what differs."""
    try:
        ours, theirs = read(path)
    except InputError as error:
        return Counter(files=1, refused=1), f"refused: {error}"
    except Exception as error:  # noqa: BLE001 (whatever the other parser raises)
        return Counter(files=1, unreadable=1), f"the other parser: {type(error).__name__}: {str(error)[:160]}"
    missing, added = theirs - ours, ours - theirs
    counts = Counter(
        files=1,
        equal_files=int(not missing and not added),
        components=sum(theirs.values()),
        python=sum(number for item, number in theirs.items() if item[:1] == ("pypi",)),
        equal=sum((ours & theirs).values()),
        missing=sum(missing.values()),
        added=sum(added.values()),
    )
    return counts, "".join(f"\n    missing {item}" for item in missing) + "".join(
        f"\n    added   {item}" for item in added
    )


def main() -> None:
    """Compare every file of a directory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    totals: dict[str, Counter[str]] = {}
    for kind in ("cyclonedx", "spdx", "made"):
        for path in sorted(item for item in (options.directory / kind).rglob("*") if item.is_file()):
            reader = reader_of(path)
            if reader is None:
                continue
            counts, difference = compare(path, reader[1])
            totals.setdefault(f"{'made: ' if kind == 'made' else ''}{reader[0]}", Counter()).update(counts)
            if difference:
                print(f"{path.relative_to(options.directory)}: {difference}", file=sys.stderr)
    columns = ("files", "equal_files", "refused", "unreadable", "components", "python", "equal", "missing", "added")
    print("| format | files | equal | refused by us | by the other | components | of PyPI | equal | missing | added |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name, counts in sorted(totals.items()):
        print(f"| {name} | " + " | ".join(str(counts[column]) for column in columns) + " |")


if __name__ == "__main__":
    main()
