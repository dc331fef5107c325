"""`healthctl actions`."""

from __future__ import annotations

from urllib.parse import quote

import click

from healthctl.api_client.remediator_client import RemediatorClient, server_options
from healthctl.api_client.resource_names import suggest_names
from healthctl.cli.consent import Consent, consent_options
from healthctl.cli.default_group import DefaultListGroup
from healthctl.cli.screen import Screen, view_options
from healthctl.commands.nodes_command import matches_globs
from healthctl.exit_codes import Exit, Failure
from healthctl.pages.incident_page import ACTIONS
from healthctl.rendering.blocks import Column, Rows, escape_control_chars
from remediator.model.views import ActionView, CommandText
from remediator.model.views_actions import ActionList, AwaitingList

LIMIT_MAX = 1000
_LISTED = (
    *ACTIONS[:-1],
    Column[ActionView]("INCIDENT", lambda a: a.incident, wide=True),
    Column[ActionView](
        "WHY", lambda a: f"{a.why}: {a.detail}" if a.why and a.detail else a.why or a.detail, prose=True
    ),
)


@click.group(
    cls=DefaultListGroup,
    epilog="Examples: healthctl actions --state open; healthctl actions awaiting; healthctl actions approve inc-93bc7e61d2",
)
def actions() -> None:
    """Show, approve and cancel actions."""


@actions.command("list", epilog="Example: healthctl actions list --state open -o wide")
@click.option(
    "--state",
    type=click.Choice(["open", "ended", "all"]),
    default="all",
    show_default=True,
    help="Show running actions, finished ones, or both.",
)
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
    help="Maximum number of actions to show.",
)
@view_options
@server_options
def list_actions(server: RemediatorClient, screen: Screen, state: str, globs: tuple[str, ...], limit: int) -> None:
    """List actions, newest first. Use -o wide to show their ids."""
    found = server.get("/v1/actions", ActionList, state=state, limit=limit)
    shown = ActionList(tuple(each for each in found.actions if matches_globs(each.node, globs)))
    screen.show(shown, lambda: [Rows(shown.actions, _LISTED, "no matching action" if globs else "no action")])


@actions.command("awaiting", epilog="Example: healthctl actions awaiting")
@view_options
@server_options
def list_awaiting_actions(server: RemediatorClient, screen: Screen) -> None:
    """List actions that wait for approval, longest wait first."""
    from healthctl.cli.approval import AWAITING

    found = server.get("/v1/awaiting", AwaitingList)
    screen.show(found, lambda: [Rows(found.awaiting, AWAITING, "nothing waits for approval")])


@actions.command("approve", epilog="Example: healthctl actions approve inc-93bc7e61d2f0.d1 --dry-run")
@click.argument("what", metavar="ID")
@consent_options
@server_options
def approve_waiting_action(server: RemediatorClient, consent: Consent, what: str) -> None:
    """Approve an action. ID comes from 'healthctl actions awaiting', or is an incident that waits for one action."""
    from healthctl.cli.approval import approve_action as approve_it

    waiting = server.get("/v1/awaiting", AwaitingList).awaiting
    fitting = [each for each in waiting if what in (each.what, each.incident)]
    if not fitting:
        hint = suggest_names(what, (each.what for each in waiting)) or "; see 'healthctl actions awaiting'"
        raise Failure(f"nothing waits for approval as {what!r}{hint}", Exit.USAGE)
    if len(fitting) > 1:
        listed = "; ".join(f"{each.what} ({each.text})" for each in fitting)
        raise Failure(f"{what} waits for several actions, choose one: {listed}", Exit.USAGE)
    approve_it(server, consent, fitting[0])


@actions.command("cancel", epilog="Example: healthctl actions cancel inc-93bc7e61d2f0.d1.s0.0.drain.gpu-7")
@click.argument("action", metavar="ID")
@click.argument("why", required=False, default="")
@server_options
def cancel_action(server: RemediatorClient, action: str, why: str) -> None:
    """Cancel a planned action that has not started. Use 'healthctl actions list -o wide' to find its ID."""
    server.post(f"/v1/actions/{quote(action, safe='/')}/cancel", CommandText(why))
    click.echo(f"{escape_control_chars(action)}: cancelled")
