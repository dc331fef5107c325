"""`healthctl events`: the audit log, now or as it grows."""

from __future__ import annotations

import math
import os
import re
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from typing import Any

import click

from healthctl.api_client.remediator_client import RemediatorClient, ServerUnreachable, server_options
from healthctl.api_client.resource_names import is_whole_id
from healthctl.cli.screen import OutputFormat, Screen, output_options
from healthctl.commands.nodes_command import matches_globs
from healthctl.durations import parse_duration
from healthctl.exit_codes import Exit, Failure
from healthctl.pages.event_page import format_event_line
from healthctl.rendering.blocks import escape_control_chars, format_json_line, format_yaml
from remediator.model.views import EventList, EventView
from remediator.model.views_audit import AuditView

WAIT_S = 25.0  # how long one request waits for news
RETRY_S = 2.0
LIMIT = 100
AT_ONCE = 1000

Wanted = Callable[[EventView], bool]


class TimeParam(click.ParamType[float]):
    """A time: so long ago, or a moment in UTC."""

    name = "since"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """UTC seconds."""
        if isinstance(value, float):
            return value
        text = str(value).strip()
        try:
            if re.match(r"\d{4}-", text):
                at = datetime.fromisoformat(re.sub(r"Z$", "+00:00", text))
                return (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()
            return max(0.0, time.time() - parse_duration(text))
        except ValueError:
            self.fail(f"{text!r} is no time; write 90s, 2h, 3d, or 2026-09-01T12:00Z", param, ctx)


@click.command(
    epilog="Examples: healthctl events --follow; healthctl events --since 2h --node gpu-7; healthctl events --actor ann"
)
@click.option("--follow", "-f", is_flag=True, help="Go on until interrupted; outlasts a restart of the remediator.")
@click.option("--after", type=click.IntRange(min=0), help="Only what came after this one, by number.")
@click.option("--since", type=TimeParam(), metavar="TIME", help="Only from then on: 2h, 3d, 2026-09-01T12:00Z.")
@click.option("--until", type=TimeParam(), metavar="TIME", help="Only from before then, in the same words.")
@click.option("--node", "nodes", multiple=True, metavar="GLOB", help="Only of nodes like 'gpu-1*'; may be repeated.")
@click.option(
    "--incident",
    "incidents",
    multiple=True,
    metavar="ID",
    help="Only of this one; its first letters will do; may be repeated.",
)
@click.option(
    "--kind", "kinds", multiple=True, metavar="GLOB", help="Only kinds like 'decision' or 'action*'; may be repeated."
)
@click.option(
    "--actor",
    "actors",
    multiple=True,
    metavar="GLOB",
    help="Only what these did: a person, or 'remediator'; may be repeated.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help=f"Only the newest so many of them.  [{LIMIT} without --after or --since]",
)
@output_options
@server_options
def events(  # noqa: PLR0913, PLR0917 - one for each option
    server: RemediatorClient,
    screen: Screen,
    after: int | None,
    since: float | None,
    until: float | None,
    nodes: tuple[str, ...],
    incidents: tuple[str, ...],
    kinds: tuple[str, ...],
    actors: tuple[str, ...],
    limit: int | None,
    *,
    follow: bool,
) -> None:
    """Show the audit log, oldest first: what was seen, decided and done, and who did or said it.

    '-o json' gives one object on each line. That nobody changed the log since is told by 'remediator audit verify'.
    """
    if follow and until is not None:
        raise Failure("--follow waits for what comes, --until ends before it; give one of them", Exit.USAGE)
    if follow:  # Ctrl-C is the usual way to leave; as an exception a library's destructor could swallow it
        signal.signal(signal.SIGINT, lambda *_: os._exit(Exit.OK))
    end = math.inf if until is None else until

    def wanted(event: EventView) -> bool:
        of = not incidents or any(event.incident.startswith((i, f"inc-{i}")) for i in incidents)
        by = (
            matches_globs(event.node, nodes) and matches_globs(event.kind, kinds) and matches_globs(event.actor, actors)
        )
        return of and by and (since or 0.0) <= event.at < end

    given = {"node": nodes, "kind": kinds, "actor": actors}
    exact: dict[str, Any] = {name: words[0] for name, words in given.items() if _is_exact_name(words)}
    if len(incidents) == 1 and is_whole_id(incidents[0]):
        exact["incident"] = incidents[0]
    if after is None and (since is None or {"node", "incident"} & set(exact)):  # these two the server finds by an index
        times = {name: at for name, at in (("since", since), ("until", until)) if at}
        most = limit or (LIMIT if since is None else None)
        last = _print_newest(server, screen, exact | times, wanted, most)
    else:
        last = _print_all(server, screen, (after or 0, since or 0.0, end), wanted, limit)
    while follow:
        last = _follow_events(server, screen, last, wanted)


def _is_exact_name(given: tuple[str, ...]) -> bool:
    """Whether the server can look for it: one name that is no pattern."""
    return len(given) == 1 and not set("*?[") & set(given[0])


def _print_newest(
    server: RemediatorClient, screen: Screen, exact: dict[str, Any], wanted: Wanted, limit: int | None
) -> int:
    """The newest that are wanted, or all, looked for backwards; the number of the log's last line."""
    view = server.get("/v1/audit", AuditView, limit=AT_ONCE, **exact)
    head, found = view.head, list(filter(wanted, view.events))
    while view.looked_to and (limit is None or len(found) < limit):
        view = server.get("/v1/audit", AuditView, limit=AT_ONCE, before=view.looked_to, **exact)
        found += filter(wanted, view.events)
    for event in reversed(found[:limit]):
        _print_event(event, screen)
    sys.stdout.flush()
    return head


def _print_all(
    server: RemediatorClient, screen: Screen, span: tuple[int, float, float], wanted: Wanted, limit: int | None
) -> int:
    """Everything after a line, since a time, before another; the number of the last one."""
    last, since, until = span

    def read() -> Iterator[EventView]:
        nonlocal last
        more = {"since": since} if since else {}
        while portion := server.get("/v1/events", EventList, after=last, **more).events:
            last, more = portion[-1].seq, {}
            yield from filter(wanted, portion)
            if all(event.at >= until for event in portion):  # not any: their order is not quite that of their times
                return

    for event in read() if limit is None else deque(read(), limit):
        _print_event(event, screen)
    sys.stdout.flush()
    return last


def _follow_events(server: RemediatorClient, screen: Screen, after: int, wanted: Wanted) -> int:
    """Wait for the next events and print them; if nobody answers, say so and try again later."""
    try:
        portion = server.get("/v1/events", EventList, wait_s=WAIT_S, after=after).events
    except ServerUnreachable as trouble:
        click.echo(f"healthctl: {escape_control_chars(trouble.message)}; trying again every {RETRY_S:g} s", err=True)
        time.sleep(RETRY_S)
        return after
    for event in filter(wanted, portion):
        _print_event(event, screen)
    sys.stdout.flush()
    return max((event.seq for event in portion), default=after)


def _print_event(event: EventView, screen: Screen) -> None:
    if screen.form is OutputFormat.JSON:
        click.echo(format_json_line(event))
    elif screen.form is OutputFormat.YAML:
        click.echo(f"---\n{format_yaml(event)}")
    else:
        click.echo(format_event_line(event))
