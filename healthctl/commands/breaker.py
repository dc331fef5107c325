"""`healthctl breaker`."""

from __future__ import annotations

import click

from healthctl.consent import Consent, consent_options
from healthctl.exits import Exit
from healthctl.listing import ListsByDefault
from healthctl.output import Block, Cell, Facts, Tone, moment
from healthctl.screen import Screen, view_options
from healthctl.server import Server, server_options
from remediator.model.views import Words
from remediator.model.views_work import BreakerView


class ShowsByDefault(ListsByDefault):
    """`healthctl breaker` is `healthctl breaker show`."""

    default = "show"


@click.group(cls=ShowsByDefault, epilog="Example: healthctl breaker reset 'one bad switch, replaced'")
def breaker() -> None:
    """The breaker: it opens when too many nodes fail at once, and from then on nothing is isolated until a person has looked."""


@breaker.command(epilog="Example: healthctl breaker show")
@view_options
@server_options
def show(server: Server, screen: Screen) -> None:
    """Show whether it is open, since when and why. With every limit and its figures now. Ends with 1 if it is open."""
    found = server.get("/v1/breaker", BreakerView)
    screen.code = Exit.PROBLEM if found.open else Exit.OK
    screen.show(found, lambda: _page(found))


@breaker.command(epilog="Example: healthctl breaker reset 'one bad switch, replaced'")
@click.argument("why", required=False, default="")
@consent_options
@server_options
def reset(server: Server, consent: Consent, why: str) -> None:
    """Let nodes be isolated again. You have looked why it opened: WHY is written down."""
    found = server.get("/v1/breaker", BreakerView)
    if not found.open:
        click.echo("the breaker is closed already")
        return
    if consent.given("close the breaker, so that nodes are isolated again", lambda: _page(found)):
        server.post("/v1/breaker/reset", Words(why))
        click.echo("the breaker is closed")


def _page(found: BreakerView) -> list[Block]:
    state = Cell("open: nothing is isolated", Tone.BAD) if found.open else Cell("closed", Tone.GOOD)
    by = f" by {found.last_reset_by}" if found.last_reset_by else ""
    return [
        Facts(
            [
                ("breaker", state),
                ("since", moment(found.since) if found.since is not None else ""),
                ("why", found.why),
                ("incident", found.incident),
                ("last reset", f"{moment(found.last_reset)}{by}" if found.last_reset is not None else "never"),
                *(("limit", limit) for limit in found.limits),
                ("as of", moment(found.at)),
                ("to close it", "healthctl breaker reset WHY" if found.open else ""),
            ]
        )
    ]
