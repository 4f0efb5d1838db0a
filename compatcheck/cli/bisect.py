"""`compatcheck bisect`: which release broke it, and which one mended it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from compatcheck.cli import options, probing
from compatcheck.cli.progress import Progress
from compatcheck.core.errors import EXIT_CLEAN, EXIT_FINDINGS, EXIT_NOTHING_TO_CHECK, UsageError
from compatcheck.core.markers import canonical_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from compatcheck.lab.bisect import Search
    from compatcheck.lab.bisection import Outcome
    from compatcheck.lab.probes.probe import Probe
    from compatcheck.rules.database import RuleSet


@click.command("bisect", cls=options.GroupedCommand, short_help="Find the releases that broke and mended something.")
@click.argument("name", metavar="PROBE")
@click.option("--package", required=True, metavar="PACKAGE", help="Package whose releases are searched.")
@click.option("--good", metavar="RELEASE", help="A release that is good: the search stays between this and --bad.")
@click.option("--bad", metavar="RELEASE", help="A release that is bad.")
@click.option("--versions", "specifier", metavar="SPEC", help="Only releases in this range: '>=0.14,<0.18'.")
@click.option(
    "--depth",
    type=click.Choice(["minors", "until-found", "all"]),
    default="until-found",
    show_default=True,
    help="minors: one release per minor version, and what lies between those that differ; until-found: more, while "
    "all agree; all: every release.",
)
@click.option("--dry-run", is_flag=True, help="Say which releases would be tested first, and build nothing.")
@click.option(
    "--report", type=click.Path(dir_okay=False), help="Write a report for the package's maintainers (Markdown)."
)
@probing.laboratory_options
@probing.jobs_option
@click.option(
    "--format", "format_name", type=click.Choice(["text", "json", "markdown"]), default="text", show_default=True
)
def command(
    name: str,
    package: str,
    good: str | None,
    bad: str | None,
    specifier: str | None,
    depth: str,
    dry_run: bool,
    report: str | None,
    format_name: str,
    **given: Any,  # noqa: ANN401 (options that `Settings` takes)
) -> int:
    """Find every release of a package in which a probe's verdict changes.

    The verdict is the probe's own: what it measures against what it derives for a healthy release. Results are kept as they
    come; an interrupted search goes on where it was.

    Exit code 1: a release in the range is bad. 0: none is. 3: none could be tested.
    """
    from compatcheck.lab.bisect import Search, find_intervals, minors  # noqa: PLC0415 (beside its use)
    from compatcheck.lab.bisection import Bisection, Outcome  # noqa: PLC0415 (beside its use)
    from compatcheck.lab.probes.probe import find_probe  # noqa: PLC0415 (beside its use)
    from compatcheck.lab.probes.runner import make_task  # noqa: PLC0415 (beside its use)
    from compatcheck.rules.locate import open_rules  # noqa: PLC0415 (beside its use)

    settings = probing.Settings(**given)
    probe = find_probe(name)
    _check_package(probe, package)
    task = make_task(probe, probing.parse_one_set(settings.parameters), settings.backend)
    rules = open_rules()
    releases = choose_releases(rules, package, specifier, good, bad)
    if dry_run:
        from compatcheck.lab.reporters.measurement import wrap_text  # noqa: PLC0415 (beside its use)

        firsts = dict.fromkeys((*(minor[0] for minor in minors(releases)), releases[-1]))
        text = f"releases of {package}: {len(releases)}; tested first: {', '.join(firsts)}"
        click.echo("\n".join(wrap_text(text, "", "  ")))
        return EXIT_CLEAN
    progress = Progress(None, quiet=settings.quiet)
    laboratory = probing.open_laboratory(settings, package, releases, rules, progress=progress)
    measured = {}

    def judge(versions: Sequence[str]) -> Iterator[Outcome]:
        for version, (measurement,) in laboratory.measure_all(versions, [task]):
            verdict, value, _ = probe.judge(measurement)
            measured[version] = measurement
            yield Outcome(version=version, verdict=verdict, value=value, reason=measurement.reason)  # type: ignore[arg-type]

    search = Search(releases, judge)
    _check_ends(search, good, bad)
    search.run(depth=depth)
    progress.close()
    tested = search.tested()
    found = Bisection(
        probe=probe.name,
        package=package,
        metric=probe.module.METRIC,
        predicted=probe.module.predict(task.parameters).get(probe.module.METRIC),
        tolerance=probe.module.tolerance(task.parameters),
        tested=tested,
        intervals=find_intervals(tested),
        transitions=search.transitions(),
        untested=search.untested(),
        older=search.older,
    )
    from compatcheck.lab.probes.script import make_script  # noqa: PLC0415 (beside its use)
    from compatcheck.lab.reporters import bisection  # noqa: PLC0415 (beside its use)

    sides = list(dict.fromkeys(side for change in found.transitions for side in (change.before, change.after)))
    if report is not None or format_name == "markdown":
        text = bisection.format_upstream(
            found,
            title=probe.title,
            derivation=probe.documentation.partition("\n")[2],
            measurements=[measured[version] for version in sides],
            script=make_script(task),
        )
        if report is not None:
            with open(report, "w", encoding="utf-8") as file:
                file.write(text)
        if format_name == "markdown":
            click.echo(text, nl=False)
    if format_name == "text":
        click.echo(bisection.format_text(found), nl=False)
    elif format_name == "json":
        import json  # noqa: PLC0415 (one format)

        click.echo(json.dumps(bisection.to_json(found), indent=2))
    verdicts = {one.verdict for one in tested}
    if "bad" in verdicts:
        return EXIT_FINDINGS
    return EXIT_CLEAN if "good" in verdicts else EXIT_NOTHING_TO_CHECK


def choose_releases(
    rules: RuleSet,
    package: str,
    specifier: str | None,
    good: str | None = None,
    bad: str | None = None,
) -> list[str]:
    """Return the final releases of a package in a range, oldest first; with two ends, those between them.

    Raises:
        UsageError: the package has no snapshot of releases, an end is none of them, or the range is empty.
    """
    from packaging.version import Version  # noqa: PLC0415 (beside its use)

    from compatcheck.core.versions import InvalidSpecifierError, compile_specifier, contains  # noqa: PLC0415 (beside its use)

    known = [release for release in rules.releases(package) if not Version(release).is_prerelease]
    if not known:
        names = sorted(name.partition("/")[2] for base in rules.databases for name in base.sections("releases/"))
        from difflib import get_close_matches  # noqa: PLC0415 (only on the way to an error)

        near = get_close_matches(package, names, n=1)
        msg = f"no releases of {package!r} are known"
        raise UsageError(msg, hint=f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}")
    for end in (good, bad):
        if end is not None and end not in known:
            msg = f"{end} is no release of {package}"
            raise UsageError(msg, hint=f"the newest is {known[-1]}")
    if good is not None and good == bad:
        msg = f"--good and --bad are both {good}"
        raise UsageError(msg, hint="name two releases, or one of them alone")
    if specifier is not None and not specifier.strip():
        msg = "--versions is empty"
        raise UsageError(msg, hint="as --versions '>=0.14,<0.18'; without it all releases are taken")
    try:
        bounds = compile_specifier(specifier) if specifier else None
    except InvalidSpecifierError as error:
        msg = f"--versions {specifier!r}: {error}"
        raise UsageError(msg) from None
    ends = sorted(known.index(end) for end in (good, bad) if end is not None)
    if len(ends) == 2:
        known = known[ends[0] : ends[1] + 1]
    chosen = [release for release in known if bounds is None or contains(bounds, release) == "yes"]
    if not chosen:
        msg = f"no release of {package} lies in {specifier}"
        raise UsageError(msg)
    for end in (good, bad):
        if end is not None and end not in chosen:
            msg = f"{end} does not lie in --versions {specifier}"
            raise UsageError(msg, hint="leave one of the two out")
    return chosen


def _check_package(probe: Probe, package: str) -> None:
    """Refuse to search the releases of a package that the probe does not use: its verdict could not change.

    Raises:
        UsageError: the probe does not use it.
    """
    used = dict.fromkeys((*probe.module.PACKAGES, "torch"))
    if canonical_name(package) not in used:
        msg = f"probe {probe.name} does not use {package}"
        raise UsageError(msg, hint=f"it uses {', '.join(used)}; `compatcheck sweep` measures it beside any package")


def _check_ends(search: Search, good: str | None, bad: str | None) -> None:
    """Test the releases a person called good and bad, and refuse to go on when they are not.

    Raises:
        UsageError: one of them is not what it was said to be.
    """
    for version, wanted in ((good, "good"), (bad, "bad")):
        if version is None:
            continue
        search.test(version)
        tested = search.found[version]
        if tested.verdict != wanted:
            why = f": {tested.reason}" if tested.reason else ""
            msg = f"{version} was to be {wanted} and is {tested.verdict}{why}"
            raise UsageError(msg, hint="the verdict is the probe's; leave the option out to search all releases")
