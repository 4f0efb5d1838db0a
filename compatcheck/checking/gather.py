"""Gather the subjects of a command: an installed environment, files or a container image."""

import os
from collections.abc import Mapping

from compatcheck.checking.request import (
    Gathered,
    Request,
    Shared,
    build_subject,
    declared_hardware,
    parse_settings,
    read_shared,
    with_variables,
)
from compatcheck.core.hardware import Hardware
from compatcheck.core.source import Source
from compatcheck.rules.database import RuleSet


def gather(request: Request, rules: RuleSet, environ: Mapping[str, str]) -> Gathered:
    """Read every input and resolve the subjects.

    Raises:
        CompatcheckError: an option makes no sense, or the environment cannot be found.
    """
    shared = read_shared(request, rules, environ)
    if request.paths or request.hook:
        from compatcheck.checking.files import gather_paths, gather_touched  # noqa: PLC0415 (only for files)

        return gather_touched(request, shared) if request.hook else gather_paths(request, shared)
    if request.image is not None:
        from compatcheck.checking.images import gather_image  # noqa: PLC0415 (only for images)

        return gather_image(request, shared)
    return _gather_environment(request, shared)


def _gather_environment(request: Request, shared: Shared) -> Gathered:
    from compatcheck.collectors.python.installed import collect_installed  # noqa: PLC0415 (not for files)
    from compatcheck.collectors.python.interpreter import locate  # noqa: PLC0415 (not for files)
    from compatcheck.collectors.python.metadata_check import check_records  # noqa: PLC0415 (not for files)

    layout = locate(request.python, request.prefix, shared.environ)
    environment = check_records(collect_installed(layout), shared.rules.packages)
    if shared.variables is None and not request.here:
        pass
    elif shared.variables is None:
        own = layout.chosen not in {"--python", "--prefix"} or os.path.realpath(layout.prefix) == os.path.realpath(
            shared.environ.get("VIRTUAL_ENV", ""),
        )
        environment = with_variables(environment, shared.environ, Source("environment of this process"), complete=own)
    else:
        environment = with_variables(environment, shared.variables, Source(request.env_file or ""), complete=True)
    hardware = list(shared.hardware)
    if request.gpu is None and request.here:
        hardware.append((_measure_hardware(shared.environ), False))
    subject = build_subject(layout.origin, environment, shared.documents, shared._replace(hardware=tuple(hardware)))
    return Gathered((subject,), shared.skipped, layout.chosen, files=shared.files)


def move(gathered: Gathered, request: Request, rules: RuleSet) -> Gathered:
    """Resolve what has been read once more, on another machine; nothing is read again.

    Args:
        gathered: what a request gave that differs from this one in devices, nodes, driver and target only.
        request: names the machine.
        rules: the rule database.
    """
    from compatcheck.resolution.resolve import resolve  # noqa: PLC0415 (beside its use)

    settings = {**parse_settings(request.run_settings, request.sources), **parse_settings(request.settings)}
    declared = declared_hardware(request)
    subjects = []
    for subject in gathered.subjects:
        own = None if subject.environment is None else subject.environment.hardware
        moved = resolve(
            subject.id,
            rules=rules,
            environment=subject.environment,
            documents=subject.documents,
            hardware=declared if own is None else (*declared, (own, False)),
            settings=settings,
        )
        subjects.append(moved)
    return gathered._replace(subjects=tuple(subjects))


def _measure_hardware(environ: Mapping[str, str]) -> Hardware:
    from compatcheck.collectors.machine.driver import collect_hardware  # noqa: PLC0415 (not for files)

    return collect_hardware(environ)
