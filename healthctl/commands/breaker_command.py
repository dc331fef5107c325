"""`healthctl breaker`."""

from __future__ import annotations

import click

from healthctl.api_client.remediator_client import RemediatorClient, server_options
from healthctl.cli.consent import Consent, consent_options
from healthctl.cli.default_group import DefaultListGroup
from healthctl.cli.screen import Screen, view_options
from healthctl.exit_codes import Exit
from healthctl.rendering.blocks import Block, Cell, Facts, Tone, format_timestamp
from remediator.model.views import CommandText
from remediator.model.views_actions import BreakerView


class DefaultShowGroup(DefaultListGroup):
    """`healthctl breaker` is `healthctl breaker show`."""

    default = "show"


@click.group(cls=DefaultShowGroup, epilog="Example: healthctl breaker reset 'one bad switch, replaced'")
def breaker() -> None:
    """Show and reset the breaker. It opens when too many nodes fail at once; no node is isolated until an operator resets it."""


@breaker.command("show", epilog="Example: healthctl breaker show")
@view_options
@server_options
def show_breaker(server: RemediatorClient, screen: Screen) -> None:
    """Show whether the breaker is open, since when and why, and all limits. Exits with 1 if it is open."""
    found = server.get("/v1/breaker", BreakerView)
    screen.code = Exit.PROBLEM if found.open else Exit.OK
    screen.show(found, lambda: _render_breaker(found))


@breaker.command("reset", epilog="Example: healthctl breaker reset 'one bad switch, replaced'")
@click.argument("why", required=False, default="")
@consent_options
@server_options
def reset_breaker(server: RemediatorClient, consent: Consent, why: str) -> None:
    """Close the breaker, so that nodes can be isolated again. WHY is recorded."""
    found = server.get("/v1/breaker", BreakerView)
    if not found.open:
        click.echo("the breaker is already closed")
        return
    if consent.confirm("close the breaker, so that nodes can be isolated again", lambda: _render_breaker(found)):
        server.post("/v1/breaker/reset", CommandText(why))
        click.echo("the breaker is closed")


def _render_breaker(found: BreakerView) -> list[Block]:
    state = Cell("open: no further node is isolated", Tone.BAD) if found.open else Cell("closed", Tone.GOOD)
    by = f" by {found.last_reset_by}" if found.last_reset_by else ""
    return [
        Facts(
            [
                ("breaker", state),
                ("since", format_timestamp(found.since) if found.since is not None else ""),
                ("why", found.why),
                ("incident", found.incident),
                (
                    "last reset",
                    f"{format_timestamp(found.last_reset)}{by}" if found.last_reset is not None else "never",
                ),
                *(("limit", limit) for limit in found.limits),
                ("as of", format_timestamp(found.at)),
                ("to close it", "healthctl breaker reset WHY" if found.open else ""),
            ]
        )
    ]
