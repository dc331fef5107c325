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
from healthctl.pages.incident_page import INCIDENTS, incident_title, render_incident_page
from healthctl.rendering.blocks import Rows, escape_control_chars, escape_json, escape_page
from remediator.model.journal_records import IncidentState
from remediator.model.views import IncidentList, IncidentView, Words

FORMS = ("md", "html", "json")
_incident = click.argument("given", metavar="ID", shell_complete=incident_ids)
_perhaps_text = click.argument("text", required=False, default="")


@click.group(
    cls=DefaultListGroup,
    epilog="Examples: healthctl incidents --state open; healthctl incidents show 93bc; healthctl incidents ack 93bc 'on it'",
)
def incidents() -> None:
    """Incidents: what happened, was decided and done. Of an ID the first letters are enough."""


@incidents.command("list", epilog="Example: healthctl incidents list --state open")
@click.option("--node", "globs", multiple=True, metavar="GLOB", help="Only of nodes like 'gpu-1*'; may be repeated.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([s.value for s in IncidentState]),
    help="Only these; open: all that are not closed; may be repeated.",
)
@click.option("--limit", type=click.IntRange(min=1), help="So many at most.")
@view_options
@server_options
def list_incidents(
    server: RemediatorClient, screen: Screen, globs: tuple[str, ...], states: tuple[str, ...], limit: int | None
) -> None:
    """Show incidents, newest first."""
    closed, every_open = IncidentState.CLOSED.value, IncidentState.OPEN.value in states
    found = server.get("/v1/incidents", IncidentList, state="all" if closed in states or not states else "open")

    def wanted(each: IncidentView) -> bool:
        fitting = not states or each.state in states or (every_open and each.state != closed)
        return fitting and matches_globs(each.node, globs)

    kept = list(filter(wanted, found.incidents))
    shown = IncidentList(tuple(kept[:limit]))
    screen.show(
        shown,
        lambda: [Rows(shown.incidents, INCIDENTS, "no incident fits" if globs or states else "no incident so far")],
    )


@incidents.command("show", epilog="Example: healthctl incidents show 93bc")
@_incident
@view_options
@server_options
def show_incident(server: RemediatorClient, screen: Screen, given: str) -> None:
    """Show one incident whole. Findings, decisions and why, actions and what became of them."""
    incident = server.get(incident_path(server, given)[1], IncidentView)
    screen.show(incident, lambda: render_incident_page(incident))


@incidents.command("approve", epilog="Example: healthctl incidents approve 93bc --dry-run")
@_incident
@click.option("--what", help="The id that ID is said to wait for; needed only if it waits for several.")
@consent_options
@server_options
def approve_incident(server: RemediatorClient, consent: Consent, given: str, what: str | None) -> None:
    """Let what incident ID waits for be done. It is a whole plan, or one step of it."""
    from healthctl.cli.approval import approve_action as approve_it
    from remediator.model.views_actions import AwaitingView

    whole, path = incident_path(server, given)
    incident = server.get(path, IncidentView)
    if not incident.awaits:
        raise Failure(f"{whole} waits for nobody's approval", Exit.USAGE)
    fitting = [each for each in incident.awaits if what in (None, each.id)]
    if len(fitting) != 1:
        listed = "; ".join(f"{each.id} ({each.text})" for each in incident.awaits)
        raise Failure(f"{whole} waits for these, say which with --what: {listed}", Exit.USAGE)
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
    """Say that you look after incident ID."""
    click.echo(f"{_post_incident_action(server, given, 'acknowledge', text)}: you look after it")


@incidents.command("note", epilog="Example: healthctl incidents note 93bc 'the vendor is asked, ticket 4711'")
@_incident
@click.argument("text")
@server_options
def add_incident_note(server: RemediatorClient, given: str, text: str) -> None:
    """Write a note on incident ID, open or closed."""
    whole, path = incident_path(server, given)
    server.post(f"{path}/notes", Words(text), {"Idempotency-Key": secrets.token_hex(16)})
    click.echo(f"{escape_control_chars(whole)}: noted")


@incidents.command("resolve", epilog="Example: healthctl incidents resolve 93bc 'cable of leaf3 replaced'")
@_incident
@_perhaps_text
@server_options
def resolve_incident(server: RemediatorClient, given: str, text: str) -> None:
    """Say that incident ID is over. What it planned and did not do is cancelled; a node that we hold stays held."""
    click.echo(f"{_post_incident_action(server, given, 'resolve', text)}: closed")


@incidents.command("reopen", epilog="Example: healthctl incidents reopen 93bc 'it is back'")
@_incident
@_perhaps_text
@server_options
def reopen_incident(server: RemediatorClient, given: str, text: str) -> None:
    """Open incident ID again: it was not over. It is decided upon anew, and only a person closes it."""
    click.echo(f"{_post_incident_action(server, given, 'reopen', text)}: open again")


@incidents.command("postmortem", epilog="Example: healthctl incidents postmortem 93bc --out 93bc.html")
@_incident
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    help="Markdown, one HTML page, or JSON. Without it as FILE's name ends, else md.",
)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write it there, not to standard output.")
@server_options
def write_postmortem(server: RemediatorClient, given: str, form: str | None, out: Path | None) -> None:
    """Tell an incident afterwards. With timeline, cause, actions, cost in GPU-hours, follow-ups, curves."""
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
    server.post(f"{path}/{word}", Words(text))
    return escape_control_chars(whole)
