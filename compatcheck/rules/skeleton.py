"""What a new rule file starts from."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from compatcheck.core.errors import UsageError
from compatcheck.core.programs import LED_ASTRAY, is_led_astray

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PLACEHOLDER = "TODO"
"""What stands where a new rule has nothing of its own yet, in a value or in the comment behind one."""
SKELETON = """\
title: "TODO: one line, at most 80 characters, saying what goes wrong"
kind: regression              # regression | default-change | pitfall | incompatibility | folklore
status: draft                 # becomes active when both sides of every boundary were read or measured
reason: boundaries not checked yet
affected: {PACKAGE: ">=0"}  # TODO: the releases it holds for
checked_through: {PACKAGE: "0"}  # TODO: the newest release whose code was read
when: "training.zero_stage == 3"  # TODO: the settings it holds under
impact:
  effect: memory
  memory: device
  scope: rank
  phase: whole
  bytes: "dtype_bytes(training.param_dtype) * model.parameters"  # TODO: what it costs
confidence: reported
verifiable: []
what: "TODO: what a person sees, in your own words"
why: "TODO: the mechanism, with the place in the source"
known_problems: "TODO: limits, and what could not be established"
remedies:
  - {note: "TODO: what to do", safety: safe}
references:
  - {type: REPORT, url: "https://example.invalid/TODO"}
# probe: NAME, or {name: NAME, parameters: {layers: 4}, metric: kept_bytes}: what confirms the rule
# evidence:                   # for `confidence: measured`: files, and differences of them that the formula must give
#   - fixtures/measurements/PROBE/SLUG.json
#   - metric: backward.live_bytes
#     suspect: fixtures/measurements/PROBE/BAD.json
#     baseline: {file: fixtures/measurements/PROBE/SWEEP.jsonl, versions: {PACKAGE: "0"}, parameters: {layers: 4}}
#     facts: {model.parameters: 1000000}   # of the measured run, where the probe does not tell them
examples:
  match:
    - {packages: {PACKAGE: "0"}, training: {zero_stage: 3}}  # TODO: a run that it holds for
  no_match:
    - {packages: {PACKAGE: "0"}, training: {zero_stage: 2}}  # TODO: one that differs from it in one condition
"""


def write_skeleton(rule_id: str, root: Path) -> Path:
    """Write the skeleton of a rule into a directory of rules and return its path.

    Raises:
        UsageError: the id is not PACKAGE/SLUG, or the file exists or cannot be written.
    """
    package, _, slug = rule_id.partition("/")
    if not all(part.replace("-", "").replace("_", "").replace(".", "").isalnum() for part in (package, slug)):
        raise UsageError(
            f"{rule_id!r} is not PACKAGE/SLUG",
            hint="as deepspeed/zero3-params-kept-in-backward: name the bad pattern, not the fix",
        )
    path = root / package / f"{slug}.yaml"
    if os.path.exists(path):
        raise UsageError(f"{path} exists already")
    if is_led_astray(str(path)):
        raise UsageError(f"{path} is not written: {LED_ASTRAY}", hint="name another directory")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SKELETON.replace("PACKAGE", package), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}", hint="name another directory") from None
    return path


def find_placeholders(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield line, key and words of each placeholder that a rule file still has from the skeleton."""
    key = ""
    for number, line in enumerate(text.splitlines(), 1):
        if line[:1].isalpha():
            key = line.partition(":")[0]
        if PLACEHOLDER in line:
            yield number, key, line[line.index(PLACEHOLDER) + len(PLACEHOLDER) :].partition('"')[0].strip(" :}")
