"""`healthctl incidents`."""

from __future__ import annotations

import secrets
from pathlib import Path

import click

from healthctl.api_client.remediator_client import RemediatorClient, server_options
from healthctl.api_client.resource_names import incident_path
from healthctl.cli.consent import Consent, consent_options
from healthctl.cli.default_group import DefaultListGroup
from healthctl.cli.screen import Screen, view_options
from healthctl.cli.shell_completion import incident_ids
from healthctl.commands.nodes_command import matches_globs
from healthctl.exit_codes import Exit, Failure
from healthctl.pages.incident_page import INCIDENTS, incident_title, render_incident_page, render_incident_stacks
from healthctl.rendering.blocks import Rows, escape_control_chars, escape_json, escape_page
from remediator.model.journal_records import IncidentState
from remediator.model.views import CommandText, IncidentList, IncidentView
from remediator.model.views_evidence import IncidentStacks

FORMS = ("md", "html", "json")
_incident = click.argument("given", metavar="ID", shell_complete=incident_ids)
_perhaps_text = click.argument("text", required=False, default="")


@click.group(
    cls=DefaultListGroup,
    epilog="Examples: healthctl incidents --state open; healthctl incidents show 93bc; healthctl incidents ack 93bc 'on it'",
)
def incidents() -> None:
    """Show and handle incidents. A unique prefix of an ID is enough."""


@incidents.command("list", epilog="Example: healthctl incidents list --state open")
@click.option(
    "--node",
    "globs",
    multiple=True,
    metavar="GLOB",
    help="Filter by node name pattern, such as 'gpu-1*'. Can be repeated.",
)
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([s.value for s in IncidentState]),
    help="Filter by state; open: all that are not closed. Can be repeated.",
)
@click.option("--limit", type=click.IntRange(min=1), help="Maximum number of incidents to show.")
@view_options
@server_options
def list_incidents(
    server: RemediatorClient, screen: Screen, globs: tuple[str, ...], states: tuple[str, ...], limit: int | None
) -> None:
    """List incidents, newest first."""
    closed, every_open = IncidentState.CLOSED.value, IncidentState.OPEN.value in states
    found = server.get("/v1/incidents", IncidentList, state="all" if closed in states or not states else "open")

    def wanted(each: IncidentView) -> bool:
        fitting = not states or each.state in states or (every_open and each.state != closed)
        return fitting and matches_globs(each.node, globs)

    kept = list(filter(wanted, found.incidents))
    shown = IncidentList(tuple(kept[:limit]))
    screen.show(
        shown,
        lambda: [Rows(shown.incidents, INCIDENTS, "no matching incident" if globs or states else "no incident yet")],
    )


@incidents.command("show", epilog="Example: healthctl incidents show 93bc")
@_incident
@view_options
@server_options
def show_incident(server: RemediatorClient, screen: Screen, given: str) -> None:
    """Show one incident in detail. Includes findings, decisions with reasons, actions and their results."""
    incident = server.get(incident_path(server, given)[1], IncidentView)
    screen.show(incident, lambda: render_incident_page(incident))


@incidents.command("stacks", epilog="Example: healthctl incidents stacks 93bc")
@_incident
@view_options
@server_options
def show_incident_stacks(server: RemediatorClient, screen: Screen, given: str) -> None:
    """Show where the ranks of incident ID's jobs were. One tree per job, from the evidence of its nodes."""
    stacks = server.get(f"{incident_path(server, given)[1]}/stacks", IncidentStacks)
    screen.show(stacks, lambda: render_incident_stacks(stacks))


@incidents.command("approve", epilog="Example: healthctl incidents approve 93bc --dry-run")
@_incident
@click.option("--what", help="Id of the action to approve; required if the incident waits for several.")
@consent_options
@server_options
def approve_incident(server: RemediatorClient, consent: Consent, given: str, what: str | None) -> None:
    """Approve the pending plan or step of incident ID."""
    from healthctl.cli.approval import approve_action as approve_it
    from remediator.model.views_actions import AwaitingView

    whole, path = incident_path(server, given)
    incident = server.get(path, IncidentView)
    if not incident.awaits:
        raise Failure(f"{whole} does not wait for approval", Exit.USAGE)
    fitting = [each for each in incident.awaits if what in (None, each.id)]
    if len(fitting) != 1:
        listed = "; ".join(f"{each.id} ({each.text})" for each in incident.awaits)
        raise Failure(f"{whole} waits for several actions, choose one with --what: {listed}", Exit.USAGE)
    chosen, since = fitting[0], max((each.at for each in incident.decisions), default=incident.opened_at)
    steps = incident.proposed or ((chosen.text,),)
    approve_it(
        server,
        consent,
        AwaitingView(whole, incident.node, chosen.id, chosen.text, since, incident_title(incident), steps),
    )


@incidents.command("ack", epilog="Example: healthctl incidents ack 93bc 'on it'")
@_incident
@_perhaps_text
@server_options
def acknowledge_incident(server: RemediatorClient, given: str, text: str) -> None:
    """Acknowledge incident ID: assign it to yourself."""
    click.echo(f"{_post_incident_action(server, given, 'acknowledge', text)}: assigned to you")


@incidents.command("note", epilog="Example: healthctl incidents note 93bc 'vendor contacted, ticket 4711'")
@_incident
@click.argument("text")
@server_options
def add_incident_note(server: RemediatorClient, given: str, text: str) -> None:
    """Add a note to incident ID, open or closed."""
    whole, path = incident_path(server, given)
    server.post(f"{path}/notes", CommandText(text), {"Idempotency-Key": secrets.token_hex(16)})
    click.echo(f"{escape_control_chars(whole)}: noted")


@incidents.command("resolve", epilog="Example: healthctl incidents resolve 93bc 'cable of leaf3 replaced'")
@_incident
@_perhaps_text
@server_options
def resolve_incident(server: RemediatorClient, given: str, text: str) -> None:
    """Resolve incident ID. Cancels its pending actions; does not release the node."""
    click.echo(f"{_post_incident_action(server, given, 'resolve', text)}: closed")


@incidents.command("reopen", epilog="Example: healthctl incidents reopen 93bc 'it is back'")
@_incident
@_perhaps_text
@server_options
def reopen_incident(server: RemediatorClient, given: str, text: str) -> None:
    """Reopen incident ID. It is decided again, and only an operator can resolve it."""
    click.echo(f"{_post_incident_action(server, given, 'reopen', text)}: reopened")


@incidents.command("postmortem", epilog="Example: healthctl incidents postmortem 93bc --out 93bc.html")
@_incident
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    help="Output format. Default: by FILE's extension, else md.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE", help="Write to this file instead of standard output."
)
@server_options
def write_postmortem(server: RemediatorClient, given: str, form: str | None, out: Path | None) -> None:
    """Write a postmortem. It contains timeline, cause, actions, cost in GPU-hours, follow-ups and curves."""
    ending = out.suffix.lstrip(".").lower() if out is not None else ""
    form = form or (ending if ending in FORMS else FORMS[0])
    page = server.page(f"{incident_path(server, given)[1]}/postmortem", format=form)
    if out is None:
        text = page.decode(errors="backslashreplace")
        click.echo(escape_json(text) if form == "json" else escape_page(text), nl=False)
        return
    out.write_bytes(page)
    click.echo(f"{out}: {len(page)} bytes", err=True)


def _post_incident_action(server: RemediatorClient, given: str, word: str, text: str) -> str:
    whole, path = incident_path(server, given)
    server.post(f"{path}/{word}", CommandText(text))
    return escape_control_chars(whole)
