"""`compatcheck rules serve`: the rules for tools that ask an OSV service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from compatcheck.cli import options
from compatcheck.core.errors import EXIT_CLEAN, UsageError

if TYPE_CHECKING:
    from compatcheck.rules.osv import Described
    from compatcheck.services.osv_server import OsvServer


@click.command("serve", cls=options.GroupedCommand, short_help="Serve rules to pip-audit and uv audit.")
@options.selection_options
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen at; only this machine by default."
)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port; a free one by default.")
@click.option("--all", "conditional", is_flag=True, help="Serve rules that depend on a configuration too.")
def command(conditional: bool, host: str, port: int, **given: Any) -> int:  # noqa: FBT001, ANN401 (click's signature)
    """Answer as an OSV service does, so that pip-audit and `uv audit` report rules; prints its address and runs until it is
    stopped.

    A rule that depends on a configuration is served only with --all, its condition first in the summary: those tools know
    versions and nothing else. What the format cannot say (several packages together) is never served.
    """  # noqa: D205 (click joins the lines)
    from compatcheck.cli.rules_export import describe_selected, explain_left_out  # noqa: PLC0415 (beside its use)
    from compatcheck.services.osv_server import Answers, OsvServer  # noqa: PLC0415 (imports http.server)

    described = describe_selected(given["select"], given["ignore"], given["rule_directories"])
    records = [record for record in described.records if conditional or not record.conditional]
    if not records:
        raise _nothing_to_serve(described)
    explain_left_out(described.left_out)
    if not conditional and len(records) < len(described.records):
        count = len(described.records) - len(records)
        click.echo(f"{count} rules depend on a configuration and are not served; --all serves them", err=True)
    try:
        server = OsvServer((host, port), Answers(records, uncertain=conditional))
    except OSError as error:
        msg = f"cannot listen at {host}:{port}: {error.strerror or error}"
        raise UsageError(msg, hint="choose another --port, or leave it out") from None
    with server:
        click.echo(server.url)
        click.echo(f"{len(records)} rules served; stop with Ctrl-C", err=True)
        click.echo(f"  pip-audit -s osv --osv-url {server.url}/v1/query", err=True)
        click.echo(f"  uv audit --no-cache --preview-features audit --service-url {server.url}", err=True)
        serve(server)
    return EXIT_CLEAN


def _nothing_to_serve(described: Described) -> UsageError:
    if not described.records:
        return UsageError("no rule can be served", hint="choose other rules with --select")
    count = len(described.records)
    return UsageError(
        f"each of the {count} rules depends on a configuration, which pip-audit and uv do not know",
        hint="--all serves them all the same, the condition first in the summary",
    )


def serve(server: OsvServer) -> None:
    """Answer until the process is told to stop."""
    import signal  # noqa: PLC0415 (only here)
    import threading  # noqa: PLC0415 (only here)

    def stop(*_: object) -> None:
        threading.Thread(target=server.shutdown).start()  # `shutdown` waits for the loop this very thread is in

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.serve_forever(poll_interval=0.2)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
