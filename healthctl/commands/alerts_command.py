"""`healthctl alerts`: who was notified of what, and silences."""

from __future__ import annotations

import time
from fnmatch import fnmatchcase
from urllib.parse import quote

import click

from healthctl.api_client.remediator_client import RemediatorClient, server_options
from healthctl.cli.default_group import DefaultListGroup
from healthctl.cli.screen import Screen, output_options, view_options
from healthctl.cli.shell_completion import node_names
from healthctl.durations import DurationParam
from healthctl.exit_codes import Exit, Failure
from healthctl.rendering.blocks import Cell, Column, Rows, Tone, escape_control_chars, format_timestamp
from remediator.model.views import CommandText
from remediator.model.views_alerts import (
    AlertList,
    AlertTest,
    AlertTested,
    AlertView,
    SilenceList,
    SilenceRequest,
    SilenceView,
)

LIMIT_MAX = 1000
NONE = (
    "no notification sent or pending; configure receivers in the controller's configuration (alerts.receivers),"
    "and test one with 'healthctl alerts test RECEIVER'"
)
_TONES = {"sent": Tone.GOOD, "waiting": Tone.WARN, "silenced": Tone.UNKNOWN, "abandoned": Tone.BAD}
_ALERTS: tuple[Column[AlertView], ...] = (
    Column("AT", lambda a: format_timestamp(a.at)),
    Column("STATE", lambda a: Cell(a.state, _TONES.get(a.state, Tone.UNKNOWN))),
    Column("TO", lambda a: a.receiver),
    Column(
        "SENT",
        lambda a: f"due {format_timestamp(a.due)}" if a.state == "waiting" else format_timestamp(a.sent_at),
        wide=True,
    ),
    Column("TRIES", lambda a: str(a.attempts), wide=True),
    Column("KIND", lambda a: a.kind, wide=True),
    Column("ID", lambda a: a.id, wide=True),
    Column("NODE", lambda a: a.node),
    Column("INCIDENT", lambda a: a.incident),
    Column("TITLE", lambda a: a.title, prose=True),
    Column("ERROR", lambda a: a.error, prose=True),
)
_SILENCES: tuple[Column[SilenceView], ...] = (
    Column("ID", lambda s: s.id),
    Column("NODES", lambda s: s.match),
    Column("KINDS", lambda s: s.kinds),
    Column("UNTIL", lambda s: format_timestamp(s.until)),
    Column("BY", lambda s: s.by),
    Column("SINCE", lambda s: format_timestamp(s.since), wide=True),
    Column("WHY", lambda s: s.text, prose=True),
)


@click.group(
    cls=DefaultListGroup,
    epilog="Examples: healthctl alerts test pager; healthctl alerts silence 'rack 7 is moved' --node 'r7-*' --for 4h",
)
def alerts() -> None:
    """Show notifications and manage silences. A silence stops notifications, never automation."""


@alerts.command("list", epilog="Example: healthctl alerts list --node 'gpu-1*'")
@click.option("--state", type=click.Choice(list(_TONES)), help="Filter by state.")
@click.option(
    "--node",
    "globs",
    multiple=True,
    metavar="GLOB",
    help="Filter by node name pattern, such as 'gpu-1*'. Can be repeated.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, LIMIT_MAX),
    default=50,
    show_default=True,
    help="Maximum number of notifications to show.",
)
@view_options
@server_options
def list_alerts(
    server: RemediatorClient, screen: Screen, state: str | None, globs: tuple[str, ...], limit: int
) -> None:
    """List notifications, newest first. Exits with 1 if one could not be delivered."""
    told = server.get("/v1/alerts", AlertList, limit=limit).alerts
    found = AlertList(tuple(a for a in told if state in (None, a.state) and _matches_globs(a.node, globs)))
    screen.code = Exit.PROBLEM if any(a.state == "abandoned" for a in found.alerts) else Exit.OK
    none = "no matching alert" if told else NONE
    screen.show(found, lambda: [Rows(found.alerts, _ALERTS, none)])


@alerts.command("silence", epilog="Example: healthctl alerts silence 'rack 7 is moved' --node 'r7-*' --for 4h")
@click.argument("why")
@click.option(
    "--node",
    "match",
    metavar="GLOB",
    shell_complete=node_names,
    help="Node name pattern, such as 'r7-*'.  [default: all]",
)
@click.option("--kind", "kinds", metavar="GLOB", help="Finding pattern, such as 'xid/*'.  [default: all]")
@click.option(
    "--for", "span", type=DurationParam(), required=True, metavar="SPAN", help="Duration, such as 30m, 4h or 2d."
)
@output_options
@server_options
def silence_alerts(
    server: RemediatorClient, screen: Screen, why: str, match: str | None, kinds: str | None, span: float
) -> None:
    """Silence matching alerts for a limited time, with the reason WHY. Automation continues."""
    if match is None and kinds is None:
        raise Failure(
            "select what to silence: --node GLOB, --kind GLOB or both; --node '*' silences everything", Exit.USAGE
        )
    silence = SilenceRequest(time.time() + span, why, match or "*", kinds or "*")
    made = server.exchange("/v1/alerts/silences", silence, SilenceView)
    screen.show(made, lambda: [Rows([made], _SILENCES)])


@alerts.command("silences", epilog="Example: healthctl alerts silences")
@view_options
@server_options
def list_silences(server: RemediatorClient, screen: Screen) -> None:
    """List active silences, next to expire first."""
    found = server.get("/v1/alerts/silences", SilenceList)
    screen.show(found, lambda: [Rows(found.silences, _SILENCES, "no active silence")])


@alerts.command("end", epilog="Example: healthctl alerts end sil-0c1d2e3f4a")
@click.argument("silence_id", metavar="ID")
@click.argument("why", required=False, default="")
@server_options
def end_silence(server: RemediatorClient, silence_id: str, why: str) -> None:
    """End silence ID early."""
    server.post(f"/v1/alerts/silences/{quote(silence_id, safe='')}/end", CommandText(why))
    click.echo(f"{escape_control_chars(silence_id)}: ended; notifications resume")


@alerts.command("test", epilog="Example: healthctl alerts test pager")
@click.argument("receiver")
@output_options
@server_options
def send_test_alert(server: RemediatorClient, screen: Screen, receiver: str) -> None:
    """Send a test notification to RECEIVER and show the result. Exits with 1 if it was not delivered."""
    done = server.exchange("/v1/alerts/test", AlertTest(receiver), AlertTested)
    screen.code = Exit.OK if done.taken else Exit.PROBLEM
    screen.show(done, lambda: [Rows([done], _TESTED)])


_TESTED: tuple[Column[AlertTested], ...] = (
    Column("RECEIVER", lambda t: t.receiver),
    Column("TAKEN", lambda t: Cell("yes", Tone.GOOD) if t.taken else Cell("no", Tone.BAD)),
    Column("WORDS", lambda t: t.words, prose=True),
)


def _matches_globs(node: str, globs: tuple[str, ...]) -> bool:
    return not globs or any(fnmatchcase(node, glob) for glob in globs)
