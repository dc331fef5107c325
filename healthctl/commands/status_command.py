"""`healthctl status`."""

from __future__ import annotations

import click
import msgspec
from msgspec.structs import asdict

from healthctl.api_client.remediator_client import RemediatorClient, RequestRefused, server_options
from healthctl.api_client.resource_names import NOT_FOUND
from healthctl.cli.screen import OutputFormat, Screen, view_options
from healthctl.exit_codes import Exit, Failure
from healthctl.pages.next_step import describe_next_step
from healthctl.pages.status_page import (
    LISTED_MAX,
    LISTED_WIDE_MAX,
    TOLD_MAX,
    TOLD_WIDE_MAX,
    find_incident_node,
    is_well,
    render_status_page,
)
from healthctl.rendering.blocks import value_text
from remediator.model.views_overview import OverviewView

_EXITS = "0 healthy, 1 something is broken or blocks automation, 2 wrong usage, 3 no response, or refused"


class StatusOutput(OverviewView, frozen=True):
    """JSON output: the response as received, and the next step of each incident."""

    next: dict[str, str] = msgspec.field(default_factory=dict)


@click.command(epilog=f"Example: healthctl status --watch 5. Exit codes: {_EXITS}.")
@view_options
@server_options
def status(server: RemediatorClient, screen: Screen) -> None:
    """Show what is broken, what was done and why, what comes next, and how to stop it."""
    narrow = screen.form is OutputFormat.TABLE
    told_max, listed_max = (TOLD_MAX, LISTED_MAX) if narrow else (TOLD_WIDE_MAX, LISTED_WIDE_MAX)
    view = _fetch_overview(server, told_max)
    screen.code = Exit.OK if is_well(view) else Exit.PROBLEM
    screen.show(
        _build_status_output(view) if screen.is_document else view, lambda: render_status_page(view, listed_max)
    )


def _fetch_overview(server: RemediatorClient, told_max: int) -> OverviewView:
    try:
        return server.get("/v1/overview", OverviewView, incidents=told_max)
    except RequestRefused as refused:
        if refused.status != NOT_FOUND:
            raise
        todo = "if the controller is older than healthctl, use healthctl of its version, or 'healthctl incidents list'"
        raise Failure(f"{refused.message}; {todo}") from None


def _build_status_output(view: OverviewView) -> StatusOutput:
    words = {each.id: value_text(describe_next_step(each, find_incident_node(view, each))) for each in view.incidents}
    return StatusOutput(**asdict(view), next=words)
