"""The page: valid HTML that loads nothing, shows hostile texts as they are, and has a table of numbers at every figure."""

from __future__ import annotations

import json
from collections import Counter

import html5lib
import pytest
from hypothesis import HealthCheck, given, settings

from compatcheck.checking import Request, check
from compatcheck.core.errors import UsageError
from compatcheck.core.headline import headline
from compatcheck.core.installation import tell_remedy
from compatcheck.core.report import Finding, Report
from compatcheck.core.terminal import printable
from compatcheck.reporters import html
from compatcheck.reporters import json as json_reporter
from compatcheck.rules.locate import open_rules
from tests.effort import at_most
from tests.unit.reporters.drawn_reports import CASES, ROOT, reports

HTML = "{http://www.w3.org/1999/xhtml}"
SVG = "{http://www.w3.org/2000/svg}"
LOADING = {"src", "srcset", "data", "poster", "action", "background", "style"}
"""Attributes by which a page could load something, or be styled past its own rules."""
HOSTILE = "</title><script>alert(1)</script><img src=x onerror=alert(1)> & \" ' `x` {{ 7*7 }} {% raw %}"


def read(report: Report):
    """Parse the page of a report; a fault of its markup is an error."""
    parser = html5lib.HTMLParser()
    page = parser.parse(printable(html.format_report(report), "utf-8"))
    assert not [fault for _, fault, _ in parser.errors if fault != "invalid-codepoint"]  # U+FFFE in a name is harmless
    return page


def values(element) -> list[float]:
    return [float(one.get("value")) for one in element.iter(f"{HTML}data")]


def words(element) -> str:
    return " ".join("".join(element.itertext()).split())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_page_is_valid_and_loads_nothing(case, case_reports) -> None:
    page = read(case_reports[case.name])
    for element in page.iter():
        name = str(element.tag).rpartition("}")[2]
        assert name not in {"script", "iframe", "object", "embed", "link", "img", "form", "base"}
        assert not {attribute for attribute in element.keys() if attribute in LOADING or attribute.startswith("on")}  # noqa: SIM118
        if "href" in element.keys():  # noqa: SIM118 (an element is no mapping)
            assert name == "a"
            assert element.get("href").startswith(("#", "https://", "http://"))
    style = words(page.find(f".//{HTML}style"))
    assert "url(" not in style
    assert "@import" not in style
    ids = Counter(element.get("id") for element in page.iter() if element.get("id"))
    assert set(ids.values()) == {1}
    targets = {link.get("href")[1:] for link in page.iter(f"{HTML}a") if link.get("href").startswith("#")}
    assert targets <= set(ids)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_answer_comes_first_and_is_that_of_the_other_formats(case, case_reports) -> None:
    report = case_reports[case.name]
    header = read(report).find(f".//{HTML}header")
    first, *rest = (" ".join(line.split()) for line in headline(report))
    assert words(header.find(f"{HTML}h1")) == first
    assert [words(item) for item in header.iter(f"{HTML}li")] == rest


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_figure_has_a_table_with_the_numbers_of_the_json(case, case_reports) -> None:
    report = case_reports[case.name]
    data = json.loads(json_reporter.format_report(report))
    page = read(report)
    figures = list(page.iter(f"{HTML}figure"))
    tables = [table for table in page.iter(f"{HTML}table") if (table.get("class") or "").startswith("numbers")]
    assert len(figures) == len(tables)
    measured = [finding["measured"]["points"] for finding in data["findings"] if finding["measured"]]
    steps = tables[len(tables) - len(measured) :]
    told = [[[words(row[0]), *values(row[1])] for row in table.find(f"{HTML}tbody")] for table in steps]
    assert sorted(told) == sorted(measured)
    tables = tables[: len(tables) - len(measured)]
    for figure in figures:
        picture = figure.find(f"{SVG}svg")
        named = {element.get("id"): words(element) for element in picture if element.get("id")}
        assert all(named[name] for name in picture.get("aria-labelledby").split())
    wanted = []
    for subject in data["subjects"]:
        estimate = subject["estimate"]
        if estimate is None:
            continue
        columns = [
            Counter(part["bytes"]["expected"] for part in phase["components"] if part["bytes"]["expected"])
            for phase in estimate["phases"]
        ]
        wanted.append((columns, [phase["bytes"]["expected"] for phase in estimate["phases"]]))
        after = [one for plan in data["plans"] for one in plan["outcomes"] if one["subject"] == subject["id"]]
        without = [estimate["without_regressions"]] if any(one["in_peak"] for one in estimate["regressions"]) else []
        if after or without:
            needed = [one["needed_bytes"] for one in (estimate, *without, *after)]
            wanted.append(([], [size for one in needed for size in spread(one)]))
    for table, (columns, sizes) in zip(tables, wanted, strict=True):
        rows = [list(row) for row in table.find(f"{HTML}tbody")]
        for index, column in enumerate(columns, 1):
            found = Counter(size for row in rows[:-2] for size in values(row[index]))
            assert sum(size * count for size, count in found.items()) == sum(size * n for size, n in column.items())
        told = rows[-2] if columns else [cell for row in rows for cell in row]
        assert [size for cell in told for size in values(cell)] == sizes


def spread(size: dict[str, int]) -> list[int]:
    return [size["expected"]] if size["low"] == size["high"] else [size["expected"], size["low"], size["high"]]


def test_a_regression_and_what_a_plan_leaves_are_drawn(case_reports) -> None:
    report = case_reports["openrlhf-llama3-70b"]
    pictures = (picture for picture in read(report).iter(f"{SVG}svg") if picture.get("role") == "img")
    memory, change, steps, *_ = pictures
    hatched = [part for part in memory.iter(f"{SVG}rect") if part.get("fill") == "url(#memory-0-regression)"]
    assert "regression 127.5 GiB" in " ".join(map(words, hatched))
    labels = [words(text) for text in change.iter(f"{SVG}text")]
    assert labels[0] == "as it is"
    assert "without the known regressions" in labels
    assert any(label.startswith("after deepspeed 0.16.4 → 0.16.8") for label in labels)
    assert {"0.16.0: 8.00 MiB", "0.16.8: 4 B"} < {words(text) for text in steps.iter(f"{SVG}text")}


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(reports())
def test_drawn_reports_are_valid_pages(report: Report) -> None:
    page = read(report)
    assert len([one for one in page.iter(f"{HTML}details") if (one.get("class") or "").startswith("finding")]) == len(
        report.findings
    )
    assert not list(page.iter(f"{HTML}script"))


def hostile(finding: Finding) -> Finding:
    reference = finding.references[0]._replace(url="javascript:alert(1)")
    facts = tuple(fact._replace(note=HOSTILE) for fact in finding.facts)
    remedies = tuple(remedy._replace(text=HOSTILE, command=HOSTILE, note=HOSTILE) for remedy in finding.remedies)
    return finding._replace(
        rule_id=HOSTILE, subject=HOSTILE, title=HOSTILE, message=HOSTILE, references=(reference,), facts=facts, remedies=remedies
    )  # fmt: skip


def test_hostile_texts_stay_texts(case_reports) -> None:
    report = case_reports["openrlhf-llama3-70b"]
    subjects = tuple(
        subject._replace(id=HOSTILE, origin=HOSTILE, packages=((HOSTILE, HOSTILE, HOSTILE),), notes=(HOSTILE,))
        for subject in report.subjects
    )
    plans = tuple(plan._replace(subjects=(HOSTILE,), brings=(HOSTILE,)) for plan in report.plans)
    findings = tuple(map(hostile, report.findings))
    page = read(report._replace(subjects=subjects, plans=plans, findings=findings, waiver_notes=(HOSTILE,)))
    assert not list(page.iter(f"{HTML}script"))
    assert not list(page.iter(f"{HTML}img"))
    assert not [link for link in page.iter(f"{HTML}a") if "javascript" in link.get("href")]
    assert "{{ 7*7 }}" in words(page)


def test_five_hundred_findings_are_written_within_bounds(case_reports) -> None:
    report = case_reports["openrlhf-llama3-70b"]
    found = report.findings
    many = tuple(found[i % len(found)]._replace(rule_id=f"package/slug-{i % 97}", title=f"{i}") for i in range(500))
    with at_most(50):
        text = html.format_report(report._replace(findings=many))
    assert len(text) < 6_000_000
    assert text.count('<details class="finding ') == 500


def test_of_several_runs_the_one_that_misses_most_is_drawn_first(tmp_path, monkeypatch) -> None:
    for name, length in (("a", 128), ("b", 65536), ("c", 32768)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "requirements.txt").write_text("transformers==4.49.0\ntorch==2.6.0\ntrl==0.15.0\n")
        (tmp_path / name / "train.yaml").write_text(
            "model_name_or_path: Qwen/Qwen2.5-7B\nbf16: true\nper_device_train_batch_size: 1\n"
            f"max_length: {length}\noutput_dir: o\n"
        )
    monkeypatch.chdir(tmp_path)
    page = read(check(Request(paths=(".",), gpu="8xH100-80GB"), open_rules(), {}))
    section = next(one for one in page.iter(f"{HTML}section") if one.get("aria-labelledby") == "memory")
    assert [words(title)[0] for title in section.iter(f"{HTML}h3")][:3] == ["b", "c", "a"]


def test_what_was_not_read_is_said_whole(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "requirements.txt").write_text("deepspeed==0.16.4\ntransformers\n")
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3, "no_such_key": 1}')
    (tmp_path / "train.yaml").write_text(
        "output_dir: out\nper_device_train_batch_size: 1\ngradient_checkpointin: true\n"
    )
    report = check(Request(paths=("requirements.txt", "ds.json"), training=("train.yaml",)), open_rules(), {})
    page = read(report)
    section = next(one for one in page.iter(f"{HTML}section") if one.get("aria-labelledby") == "left-out")
    assert all(
        any(words(item) == f"not read: {' '.join(str(one).split())}" for item in section.iter(f"{HTML}li"))
        for one in report.skipped
    )
    assert "no reader knows train.yaml (gradient_checkpointin): did you mean gradient_checkpointing?" in words(section)


def test_without_jinja_the_way_to_get_it_is_said_before_anything_is_read(monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UsageError, match="--format html needs Jinja2") as caught:
        html.check_page()
    assert caught.value.hint == tell_remedy("Jinja2")


def test_the_page_itself_says_that_nothing_may_be_loaded() -> None:
    template = (ROOT / "compatcheck/reporters/templates/report.html").read_text(encoding="utf-8")
    assert "default-src 'none'; style-src 'unsafe-inline'" in template
    assert "<script" not in template


def test_no_run_is_a_page_as_well() -> None:
    page = html.format_estimates(())
    assert "<h1>0 runs</h1>" in page
    assert "<title>compatcheck: 0 estimates</title>" in page
