"""The text a new rule file starts from."""

SKELETON = """\
title: One line, at most 80 characters, saying what goes wrong
kind: regression              # regression | default-change | pitfall | incompatibility | folklore
status: draft                 # becomes active when both sides of every boundary were read or measured
reason: boundaries not checked yet
affected: {PACKAGE: ">=0"}
checked_through: {PACKAGE: "0"}
when: "training.zero_stage == 3"
impact:
  effect: memory
  memory: device
  scope: rank
  phase: whole
  bytes: "dtype_bytes(training.param_dtype) * model.parameters"
confidence: reported
verifiable: []
what: What a person sees, in your own words.
why: The mechanism, with the place in the source.
known_problems: Limits, and what could not be established.
remedies:
  - {note: "what to do", safety: safe}
references:
  - {type: REPORT, url: "https://example.invalid/issue"}
# probe: NAME, or {name: NAME, parameters: {layers: 4}, metric: kept_bytes}: what confirms the rule
# evidence:                   # for `confidence: measured`: files, and differences of them that the formula must give
#   - fixtures/measurements/PROBE/SLUG.json
#   - metric: backward.live_bytes
#     suspect: fixtures/measurements/PROBE/BAD.json
#     baseline: {file: fixtures/measurements/PROBE/SWEEP.jsonl, versions: {PACKAGE: "0"}, parameters: {layers: 4}}
#     facts: {model.parameters: 1000000}   # of the measured run, where the probe does not tell them
examples:
  match:
    - {packages: {PACKAGE: "0"}, training: {zero_stage: 3}}
  no_match:
    - {packages: {PACKAGE: "0"}, training: {zero_stage: 2}}
"""
