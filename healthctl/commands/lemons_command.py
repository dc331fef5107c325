"""`healthctl lemons`."""

from __future__ import annotations

import click

from healthctl.api_client.remediator_client import RemediatorClient, server_options
from healthctl.cli.screen import Screen, view_options
from healthctl.durations import format_duration_short
from healthctl.rendering.blocks import Cell, Column, Line, Rows, Tone, format_timestamp
from remediator.model.views_detectors import LemonList, LemonView

_TONES = {"watched": Tone.UNKNOWN, "suspected": Tone.WARN, "confirmed": Tone.BAD}
_COLUMNS: tuple[Column[LemonView], ...] = (
    Column("NODE", lambda lemon: lemon.node),
    Column("STATE", lambda lemon: Cell(lemon.state, _TONES.get(lemon.state, Tone.UNKNOWN))),
    Column("LEMON", lambda lemon: f"{lemon.score:.0%}"),
    Column("FAILURES", lambda lemon: f"{lemon.failures} in {format_duration_short(max(lemon.hours * 3600, 1.0))}"),
    Column("JOBS", lambda lemon: ", ".join(lemon.jobs)),
    Column("SINCE", lambda lemon: format_timestamp(lemon.since), wide=True),
    Column("INCIDENT", lambda lemon: lemon.incident, wide=True),
    Column("WHY", lambda lemon: lemon.why, prose=True),
    Column("NEXT", lambda lemon: lemon.next_step, prose=True),
)


@click.command(epilog="Examples: healthctl lemons; healthctl lemons -o wide --watch 60")
@view_options
@server_options
def lemons(server: RemediatorClient, screen: Screen) -> None:
    """List nodes that fail repeatedly although their checks pass, worst first.

    LEMON is the probability. 'healthctl analyze lemons' applies the same analysis to a record of your own.
    """
    found = server.get("/v1/lemons", LemonList)
    judged = max((lemon.at for lemon in found.lemons), default=None)
    screen.show(
        found,
        lambda: [
            Rows(found.lemons, _COLUMNS, "no lemon: no node fails more often than chance explains"),
            *([] if judged is None else [Line(f"as of {format_timestamp(judged)}")]),
        ],
    )
