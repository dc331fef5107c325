"""`healthctl events`: the audit log, once or continuously."""

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

WAIT_S = 25.0  # how long one request waits for new events
RETRY_S = 2.0
LIMIT = 100
AT_ONCE = 1000

Wanted = Callable[[EventView], bool]


class TimeParam(click.ParamType[float]):
    """A time: a duration ago, or a UTC time."""

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
            self.fail(f"{text!r} is not a time; use 90s, 2h, 3d, or 2026-09-01T12:00Z", param, ctx)


@click.command(
    epilog="Examples: healthctl events --follow; healthctl events --since 2h --node gpu-7; healthctl events --actor ann"
)
@click.option(
    "--follow",
    "-f",
    is_flag=True,
    help="Wait for new events until interrupted; reconnects when the controller restarts.",
)
@click.option("--after", type=click.IntRange(min=0), help="Show events after this event number.")
@click.option(
    "--since", type=TimeParam(), metavar="TIME", help="Show events since this time: 2h, 3d, 2026-09-01T12:00Z."
)
@click.option("--until", type=TimeParam(), metavar="TIME", help="Show events before this time, in the same format.")
@click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="GLOB",
    help="Filter by node name pattern, such as 'gpu-1*'. Can be repeated.",
)
@click.option(
    "--incident",
    "incidents",
    multiple=True,
    metavar="ID",
    help="Filter by incident id or a unique prefix. Can be repeated.",
)
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    metavar="GLOB",
    help="Filter by kind, such as 'decision' or 'action*'. Can be repeated.",
)
@click.option(
    "--actor",
    "actors",
    multiple=True,
    metavar="GLOB",
    help="Filter by actor: a person, or 'remediator'. Can be repeated.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help=f"Maximum number of events, newest first.  [{LIMIT} without --after or --since]",
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
    """Show the audit log, oldest first: what was observed, decided and done, and who caused it.

    With '-o json', prints one object per line. To verify that the log is unchanged, use 'remediator audit verify'.
    """
    if follow and until is not None:
        raise Failure("--follow and --until exclude each other", Exit.USAGE)
    if follow:  # Ctrl-C is the usual way to stop; as an exception a library's destructor could swallow it
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
    if after is None and (since is None or {"node", "incident"} & set(exact)):  # the server has an index for these two
        times = {name: at for name, at in (("since", since), ("until", until)) if at}
        most = limit or (LIMIT if since is None else None)
        last = _print_newest(server, screen, exact | times, wanted, most)
    else:
        last = _print_all(server, screen, (after or 0, since or 0.0, end), wanted, limit)
    while follow:
        last = _follow_events(server, screen, last, wanted)


def _is_exact_name(given: tuple[str, ...]) -> bool:
    """Whether the server can filter by it: one exact name, not a pattern."""
    return len(given) == 1 and not set("*?[") & set(given[0])


def _print_newest(
    server: RemediatorClient, screen: Screen, exact: dict[str, Any], wanted: Wanted, limit: int | None
) -> int:
    """Print the newest events, or all, paging backwards; returns the number of the last one."""
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
    """Print the events between the given bounds; returns the number of the last one."""
    last, since, until = span

    def read() -> Iterator[EventView]:
        nonlocal last
        more = {"since": since} if since else {}
        while portion := server.get("/v1/events", EventList, after=last, **more).events:
            last, more = portion[-1].seq, {}
            yield from filter(wanted, portion)
            if all(
                event.at >= until for event in portion
            ):  # all, not any: events are only roughly in order of their times
                return

    for event in read() if limit is None else deque(read(), limit):
        _print_event(event, screen)
    sys.stdout.flush()
    return last


def _follow_events(server: RemediatorClient, screen: Screen, after: int, wanted: Wanted) -> int:
    """Wait for new events and print them; on an outage print the error and retry."""
    try:
        portion = server.get("/v1/events", EventList, wait_s=WAIT_S, after=after).events
    except ServerUnreachable as trouble:
        click.echo(f"healthctl: {escape_control_chars(trouble.message)}; retrying every {RETRY_S:g} s", err=True)
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
