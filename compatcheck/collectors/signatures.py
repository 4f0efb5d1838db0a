"""What the first bytes of a file tell: files of conda and SBOMs, whose names vary and which say themselves what they are."""

from __future__ import annotations

import re

from compatcheck.core.pattern import lazy_compile

_DEPENDENCIES = lazy_compile(
    rb"^dependencies:[ \t]*(?:#[^\n]*)?\r?\n(?:[ \t]*(?:#[^\n]*)?\r?\n)*[ \t]*-[ \t]*([^\n]*)",
    re.MULTILINE,
    needs=(b"dependencies:",),
)
_ENTRY = lazy_compile(
    rb"""["']?(?:https?://|[A-Za-z0-9_][\w./-]*(?:::[\w.-]+)?["']?[ \t]*(?:[=<>!~\[ (][^:]*)?$|(?:pip|sel\([^)]*\)):)"""
)
_LOCK_PACKAGE = lazy_compile(rb"^package:[ \t]*\r?\n[ \t]*-", re.MULTILINE, needs=(b"package:",))
_PIXI_TABLE = lazy_compile(rb"^\[tool\.pixi[.\]]", re.MULTILINE, needs=(b"[tool.pixi",))
_PIXI_MANIFEST = lazy_compile(rb"^\[(?:workspace|project)\]", re.MULTILINE, needs=(b"[workspace]", b"[project]"))
_EXPLICIT = lazy_compile(rb"^@EXPLICIT[ \t]*\r?$", re.MULTILINE, needs=(b"@EXPLICIT",))
_LIST_HEADER = lazy_compile(
    rb"^# packages in environment at|^# This file may be used to create an environment using:"
    rb"|^#?[ \t]*Name[ \t]+Version[ \t]+Build|^List of packages in environment",
    re.MULTILINE,
    needs=(b"packages in environment", b"to create an environment", b"Version"),
)
_LIST_LINE = lazy_compile(
    rb"[ \t]*[A-Za-z0-9_][\w.+-]*(?:[ \t]+\S+[ \t]+\S+(?:[ \t]+\S+)?|=[^=\s]+=[^=\s]+|[ \t]+\S+)[ \t]*$"
)
_BOM_FORMAT = lazy_compile(rb"""["']bomFormat["']\s*:\s*["']CycloneDX["']""")
_SPDX_VERSION = lazy_compile(rb'"spdxVersion"\s*:\s*"SPDX-2')
_SPDX_LINE = lazy_compile(
    rb"""^["']?(?:spdxVersion|SPDXVersion)["']?[ \t]*:[ \t]*["']?SPDX-2""", re.MULTILINE, needs=(b"SPDX-2",)
)
_SCHEMA_BYTES = 512
_SPDX_3 = lazy_compile(rb"spdx\.org/rdf/3")


def plain_head(head: bytes) -> bytes:
    """Return the first bytes of a text without a byte order mark; UTF-16, which PowerShell's ``>`` writes, as UTF-8."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return head[: len(head) // 2 * 2].decode("utf-16", "replace").encode()
    return head.removeprefix(b"\xef\xbb\xbf")


def _begins_with_key(head: bytes) -> bool:
    """Tell whether the first line that is no comment is a key: a YAML file pasted into a longer text is not that file."""
    lines = (line.strip() for line in head.splitlines())
    first = next((line for line in lines if line and not line.startswith((b"#", b"---"))), b"")
    return b":" in first and re.match(rb"[\w-]+:", first) is not None


def is_conda_environment(head: bytes) -> bool:
    """Tell whether a YAML file has a list of conda's dependencies; those of a Helm chart are mappings."""
    head = plain_head(head)
    match = _DEPENDENCIES.search(head) if _begins_with_key(head) else None
    return match is not None and _ENTRY.match(match[1].partition(b" #")[0].strip()) is not None


def is_conda_lock(head: bytes) -> bool:
    """Tell whether a YAML file lists locked packages with a manager and a platform."""
    return (
        _begins_with_key(head)
        and _LOCK_PACKAGE.search(head) is not None
        and b"manager:" in head
        and b"platform:" in head
    )


def is_pixi_lock(head: bytes) -> bool:
    """Tell whether a YAML file has a version and then environments, as pixi writes them."""
    return head.startswith(b"version:") and re.search(rb"^environments:", head, re.MULTILINE) is not None


def has_pixi_table(head: bytes) -> bool:
    """Tell whether a ``pyproject.toml`` holds a workspace of pixi."""
    return _PIXI_TABLE.search(head) is not None


def is_pixi_manifest(head: bytes) -> bool:
    """Tell whether a TOML file has tables of pixi and channels of conda."""
    return has_pixi_table(head) or (
        _PIXI_MANIFEST.search(head) is not None and re.search(rb"^channels[ \t]*=", head, re.MULTILINE) is not None
    )


def is_conda_list(head: bytes) -> bool:
    """Tell whether a text is what ``conda list`` prints, in any form, and nothing longer around it."""
    head = plain_head(head)
    if _EXPLICIT.search(head):
        lines = [line for line in head.splitlines() if line.strip() and not line.startswith((b"#", b"@EXPLICIT"))]
        return 10 * sum(b"://" in line for line in lines) > 9 * (len(lines) - 1)  # the last line may be cut off
    if head.lstrip().startswith(b"["):
        return b'"build_string"' in head and b'"name"' in head
    if _LIST_HEADER.search(head) is None:
        return False
    lines = [
        line for line in head.splitlines() if line.strip() and not line.lstrip().startswith((b"#", b"\xe2\x94\x80"))
    ]
    fitting = sum(_LIST_LINE.match(line) is not None for line in lines)
    return 10 * fitting > 9 * len(lines)


def is_cyclonedx_json(head: bytes) -> bool:
    """Tell whether a JSON file is a CycloneDX SBOM."""
    head = plain_head(head)
    if not head.lstrip().startswith(b"{") or b"json-schema.org" in head[:_SCHEMA_BYTES]:
        return False  # no JSON, or the schema of such files
    # cyclonedx-py sorts its keys of the document behind the components.
    return _BOM_FORMAT.search(head) is not None or (b'"bom-ref"' in head and b'"components"' in head)


def is_cyclonedx_xml(head: bytes) -> bool:
    """Tell whether an XML file is a CycloneDX SBOM."""
    return head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<") and b"cyclonedx.org/schema/bom" in head


def is_spdx(head: bytes) -> bool:
    """Tell whether a file is an SPDX document of version 2 or 3, in any form."""
    head = plain_head(head)
    if not head.lstrip().startswith(b"{"):
        return _SPDX_LINE.search(head) is not None and _begins_with_key(head)
    return (
        _SPDX_VERSION.search(head) is not None
        or _SPDX_3.search(head) is not None
        or (b'"SPDXID"' in head and b'"downloadLocation"' in head)
    )


def is_syft_json(head: bytes) -> bool:
    """Tell whether a JSON file is syft's own format: it begins with the artifacts, and each says what found it."""
    return head.lstrip().startswith(b"{") and b'"artifacts"' in head and b'"foundBy"' in head


def is_node(head: bytes) -> bool:
    """Tell whether a text holds nodes as ``compatcheck env --dump`` writes them."""
    return b'{"compatcheck_node": ' in head


MARKS = (
    ("node", is_node),
    ("cyclonedx_json", is_cyclonedx_json),
    ("cyclonedx_xml", is_cyclonedx_xml),
    ("spdx", is_spdx),
    ("syft_json", is_syft_json),
    ("conda_list", is_conda_list),
    ("conda_lock", is_conda_lock),
    ("pixi_lock", is_pixi_lock),
    ("conda_environment", is_conda_environment),
    ("pixi", is_pixi_manifest),
)
"""Kind and what its content is told by, whatever the name; the most telling first."""


def identify_content(head: bytes) -> str | None:
    """Tell what a file says it is; None when it is none of `MARKS`."""
    return next((kind for kind, sniff in MARKS if sniff(head)), None)
