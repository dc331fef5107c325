"""`healthctl status`."""

from __future__ import annotations

import click
import msgspec
from msgspec.structs import asdict

from healthctl.exits import Exit, Failure
from healthctl.naming import NOT_FOUND
from healthctl.next_step import next_step
from healthctl.output import text_of
from healthctl.screen import Form, Screen, view_options
from healthctl.server import Refused, Server, server_options
from healthctl.status_page import (
    LISTED_MAX,
    LISTED_WIDE_MAX,
    TOLD_MAX,
    TOLD_WIDE_MAX,
    is_well,
    node_of,
    status_page,
)
from remediator.model.views_overview import OverviewView

_EXITS = (
    "0 all is well, 1 something is broken or keeps automation from acting, 2 wrong usage, 3 no answer or a refused one"
)


class StatusShown(OverviewView, frozen=True):
    """What programs get: the answer as it came, and what comes next by incident."""

    next: dict[str, str] = msgspec.field(default_factory=dict)


@click.command(epilog=f"Example: healthctl status --watch 5. Exit codes: {_EXITS}.")
@view_options
@server_options
def status(server: Server, screen: Screen) -> None:
    """Show what is broken, what was done, why, what comes next, and how to stop it."""
    narrow = screen.form is Form.TABLE
    told_max, listed_max = (TOLD_MAX, LISTED_MAX) if narrow else (TOLD_WIDE_MAX, LISTED_WIDE_MAX)
    view = _overview(server, told_max)
    screen.code = Exit.OK if is_well(view) else Exit.PROBLEM
    screen.show(_shown(view) if screen.is_document else view, lambda: status_page(view, listed_max))


def _overview(server: Server, told_max: int) -> OverviewView:
    try:
        return server.get("/v1/overview", OverviewView, incidents=told_max)
    except Refused as refused:
        if refused.status != NOT_FOUND:
            raise
        todo = "if it is older than this healthctl, use one of its version, or 'healthctl incidents list'"
        raise Failure(f"{refused.message}; {todo}") from None


def _shown(view: OverviewView) -> StatusShown:
    words = {each.id: text_of(next_step(each, node_of(view, each))) for each in view.incidents}
    return StatusShown(**asdict(view), next=words)
