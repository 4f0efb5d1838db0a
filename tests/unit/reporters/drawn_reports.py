"""Reports with texts no one would write, for properties of the formats."""

from __future__ import annotations

from hypothesis import strategies as st

from compatcheck.core.advisory import Advisory, Audit, Unaudited
from compatcheck.core.facts import Fact
from compatcheck.core.report import (
    SEVERITIES,
    Finding,
    FindingImpact,
    FindingReference,
    FindingRemedy,
    Report,
    SubjectReport,
)
from compatcheck.core.source import Skipped, Source
from compatcheck.core.suppression import Suppression
from tests import ROOT

CASES = sorted(path for path in (ROOT / "fixtures" / "cases").iterdir() if path.is_dir())


nasty = st.text(
    st.sampled_from("ab1 \t\n\r%:,;|<>&\"'`*_[]{}()#@\\~$\x00\x1b\x7f\ud800\ufffeé×…🎉"),
    min_size=1,
    max_size=24,
).filter(lambda text: text.strip())
plain = st.text("abc xyz", min_size=1, max_size=12).filter(str.strip)
texts = st.one_of(plain, nasty)
sources = st.builds(
    Source,
    st.one_of(texts, st.sampled_from(["pyproject.toml", "--gpu", "default of deepspeed 0.16.4", "/no/such/file"])),
    st.none() | texts,
    st.none() | st.integers(1, 99),
)
sizes = st.none() | st.integers(0, 2**45)
impacts = st.builds(
    FindingImpact,
    sizes,
    sizes,
    sizes,
    st.sampled_from(["memory", "fails_to_start", "slower"]),
    st.sampled_from(["device", "host"]),
    st.sampled_from(["rank", "node"]),
    st.just("whole"),
)
facts = st.builds(
    Fact,
    st.sampled_from(["deepspeed", "training.zero_stage", "model.expert_bytes"]),
    st.one_of(st.none(), st.booleans(), st.integers(-5, 10**12), texts, st.lists(texts, max_size=2).map(tuple)),
    st.sampled_from(["set", "configuration", "derived"]),
    st.lists(sources, max_size=2).map(tuple),
)
here = st.fixed_dictionaries(
    {
        "probe": st.just("zero3_release"),
        "metric": st.sampled_from(["kept_bytes", "slope", "open_counters"]),
        "value": st.integers(0, 2**50) | st.floats(0, 1e9),
        "predicted": st.integers(0, 2**50) | st.floats(0, 1e9),
        "verdict": st.sampled_from(["good", "bad"]),
        "backend": st.sampled_from(["fake", "cpu", "cuda"]),
        "accounting": st.just("allocator"),
        "device": texts,
        "date": st.none() | st.just("2026-11-21"),
        "versions": st.dictionaries(st.sampled_from(["deepspeed", "python"]), texts),
        "parameters": st.dictionaries(texts, st.none() | st.integers() | texts, max_size=2),
    }
)
REFERENCES = (
    FindingReference("REPORT", "https://example.org/issues/1", None),
    FindingReference("FIX", "https://example.org/pull/2", "2025-05-19"),
)


@st.composite
def audits(draw: st.DrawFn, subjects: list[str]) -> Audit:
    advisories = draw(
        st.lists(
            st.builds(
                Advisory,
                id=st.sampled_from(["GHSA-aaaa-bbbb-cccc", "PYSEC-2026-1", "x_LOCAL-a.b"]),
                aliases=st.lists(texts, max_size=2).map(tuple),
                package=st.sampled_from(["torch", "requests"]),
                version=st.sampled_from(["2.9.0+cu128", "1.0"]),
                fixed_versions=st.lists(st.sampled_from(["2.9.1", "3"]), max_size=2).map(tuple),
                description=st.just("") | texts,
                url=st.none() | st.just("https://example.org/advisory"),
                subject=st.sampled_from(subjects),
                source=sources,
                suppressed=st.none() | st.builds(Suppression, texts, st.none()),
                fails=st.booleans(),
            ).map(lambda advisory: advisory._replace(fails=advisory.fails and advisory.suppressed is None)),
            max_size=3,
            unique_by=lambda advisory: (advisory.id, advisory.package, advisory.version, advisory.subject),
        )
    )
    unaudited = draw(
        st.lists(
            st.builds(
                Unaudited,
                package=st.sampled_from(["deepspeed", "private"]),
                version=st.none() | st.just("0.16.4"),
                subject=st.sampled_from(subjects),
                source=sources,
                reason=texts,
            ),
            max_size=3,
        )
    )
    failure = draw(st.none() | texts) if unaudited and not advisories else None
    return Audit("pip-audit", 0 if failure else 4, tuple(advisories), tuple(unaudited), failure)


@st.composite
def reports(draw: st.DrawFn, max_findings: int = 14) -> Report:
    subjects = [f"{name}/requirements.txt" for name in ("a", "b")][: draw(st.integers(1, 2))]
    names = draw(
        st.lists(
            st.tuples(st.sampled_from(subjects), st.sampled_from([f"pkg{i}/slug-{i}" for i in range(9)])),
            unique=True,
            max_size=max_findings,
        ),
    )
    findings = []
    for subject, rule_id in names:
        affected = draw(st.booleans())
        waived = draw(st.booleans()) and draw(st.booleans())
        findings.append(
            Finding(
                rule_id=rule_id,
                subject=subject,
                role="train",
                kind="pitfall",
                title=draw(texts),
                status="affected" if affected else "possible",
                severity=draw(st.sampled_from(SEVERITIES)),
                confidence=draw(st.sampled_from(["measured", "reported"])),
                message=draw(texts),
                impact=draw(st.none() | impacts),
                needs=() if affected else ("training.zero_stage", *draw(st.lists(texts, max_size=1))),
                assumptions=tuple(draw(st.lists(texts, max_size=2))),
                facts=tuple(draw(st.lists(facts, max_size=2))),
                locations=tuple(draw(st.lists(sources, max_size=3))),
                remedies=tuple(
                    FindingRemedy(text, command, "safe", note)
                    for text, command, note in draw(
                        st.lists(st.tuples(texts, st.none() | texts, st.none() | texts), max_size=2),
                    )
                ),
                references=REFERENCES[: draw(st.integers(0, 2))],
                folklore=tuple(("pkg/wrong", text) for text in draw(st.lists(texts, max_size=1))),
                measured_here=draw(st.none() | here),
                suppressed=Suppression(draw(texts), draw(st.sampled_from([None, "2027-01-31"]))) if waived else None,
                fails=affected and not waived and draw(st.booleans()),
            ),
        )
    skipped = tuple(
        Skipped(source, reason, hint, named)
        for source, reason, hint, named in draw(
            st.lists(st.tuples(sources, texts, st.none() | texts, st.booleans()), max_size=3),
        )
    )
    audit = draw(st.none() | audits(subjects))
    failing = any(entry.fails for entry in (*findings, *(() if audit is None else audit.advisories)))
    unread = any(entry.named for entry in skipped) or (audit is not None and audit.failure is not None)
    code = 1 if failing else 4 if unread else 0
    return Report(
        version="0.1.0",
        database_id="0123456789ab",
        database_date="2026-11-21",
        database_rules=100,
        subjects=tuple(
            SubjectReport(
                id=subject,
                origin=subject,
                python=None,
                packages=(("deepspeed", "0.16.4", subject),),
                facts=(),
                unread_keys=(),
                conflicts=(),
                unresolved=(),
                folded=(),
            )
            for subject in subjects
        ),
        findings=tuple(findings),
        skipped=skipped,
        exit_code=code,
        threshold="medium",
        waiver_notes=tuple(draw(st.lists(texts, max_size=2))),
        seconds=0.25,
        audit=audit,
    )
