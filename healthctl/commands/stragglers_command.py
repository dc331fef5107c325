"""`healthctl stragglers`."""

from __future__ import annotations

import click

from healthctl.api_client.remediator_client import RemediatorClient, server_options
from healthctl.cli.screen import Screen, view_options
from healthctl.pages.blast_radius import format_ranges
from healthctl.rendering.blocks import Column, Rows, format_timestamp
from remediator.model.views_detectors import StragglerList, StragglerView

_COLUMNS: tuple[Column[StragglerView], ...] = (
    Column("JOB", lambda s: s.job),
    Column("NODE", lambda s: s.node or "nobody"),
    Column("RANK", lambda s: format_ranges(s.ranks or (() if s.rank is None else (s.rank,)))),
    Column("STAGE", lambda s: "" if s.stage is None else str(s.stage)),
    Column("KIND", lambda s: s.kind),
    Column("EXCESS", lambda s: f"+{s.excess:.0%}" if s.excess else ""),
    Column("SURE", lambda s: f"{s.confidence:.0%}" if s.confidence else ""),
    Column("SINCE", lambda s: format_timestamp(s.since)),
    Column("ATTEMPT", lambda s: str(s.attempt), wide=True),
    Column("JUDGED", lambda s: format_timestamp(s.at), wide=True),
    Column("VERDICT", lambda s: s.verdict, prose=True),
)


@click.command(epilog="Examples: healthctl stragglers; healthctl stragglers -o json")
@view_options
@server_options
def stragglers(server: RemediatorClient, screen: Screen) -> None:
    """List what slows training jobs down, slowest first: a rank, a node or a stage.

    EXCESS is the extra time compared with peers. 'healthctl analyze stragglers' analyzes recorded step times.
    """
    found = server.get("/v1/stragglers", StragglerList)
    screen.show(found, lambda: [Rows(found.stragglers, _COLUMNS, "no straggler reported")])
