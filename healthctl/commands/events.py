"""`healthctl events`: the audit log, now or as it grows."""

from __future__ import annotations

import os
import signal
import sys
import time

import click

from healthctl.output import clean, json_line, moment, output_option
from healthctl.server import Server, Unreachable, server_options
from remediator.model.views import EventList, EventView

WAIT_S = 25.0  # how long one request waits for news
RETRY_S = 2.0


@click.command()
@click.option("--follow", "-f", is_flag=True, help="Go on until interrupted; outlasts a restart of the remediator.")
@click.option(
    "--after", type=click.IntRange(min=0), default=0, show_default=True, help="Only what came after this one."
)
@output_option
@server_options
def events(server: Server, after: int, output: str, *, follow: bool) -> None:
    """Show the audit log, oldest first; '-o json' gives one object on each line."""
    if follow:  # Ctrl-C is the usual way to leave; as an exception a library's destructor could swallow it
        signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    last = _print_all(server, after, output)
    while follow:
        last = _print_news(server, last, output)


def _print_all(server: Server, after: int, output: str) -> int:
    """Everything there is now; the server answers in portions."""
    while portion := server.get("/v1/events", EventList, after=after).events:
        after = _print(portion, after, output)
    return after


def _print_news(server: Server, after: int, output: str) -> int:
    """Wait for the next events and print them; if nobody answers, say so and try again later."""
    try:
        return _print(server.get("/v1/events", EventList, wait_s=WAIT_S, after=after).events, after, output)
    except Unreachable as trouble:
        click.echo(f"healthctl: {clean(trouble.message)}; trying again every {RETRY_S:g} s", err=True)
        time.sleep(RETRY_S)
        return after


def _print(portion: tuple[EventView, ...], after: int, output: str) -> int:
    for event in portion:
        click.echo(json_line(event) if output == "json" else _line(event))
    sys.stdout.flush()
    return max((event.seq for event in portion), default=after)


def _line(event: EventView) -> str:
    about = " ".join(part for part in (event.node, event.incident) if part)
    marked = "[injected] " if event.injected else ""
    return clean(
        f"{event.seq:>6}  {moment(event.at)}  {event.kind:<20}  {event.actor:<12}  {marked}{event.text}"
        + (f"  ({about})" if about else "")
    )
