"""`healthctl incidents`."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import click

from healthctl.commands.nodes import findings_table
from healthctl.exits import Exit, Failure
from healthctl.listing import ListsByDefault
from healthctl.output import clean, facts, json_text, moment, output_option, table
from healthctl.server import Server, server_options
from remediator.model.views import Approval, DecisionView, IncidentList, IncidentView, Words

FORMS = ("md", "html", "json")


@click.group(cls=ListsByDefault)
def incidents() -> None:
    """Incidents: what happened, was decided and done."""


@incidents.command("list")
@output_option
@server_options
def list_incidents(server: Server, output: str) -> None:
    """Show incidents, newest first."""
    found = server.get("/v1/incidents", IncidentList)
    if output == "json":
        click.echo(json_text(found))
        return
    header = ("INCIDENT", "NODE", "STATE", "OPENED", "CLOSED", "OUTCOME", "TITLE")
    rows = [
        (i.id, i.node, i.state, moment(i.opened_at), moment(i.closed_at), i.outcome or "-", _title(i))
        for i in found.incidents
    ]
    click.echo(table(header, rows) if rows else "no incident so far")


@incidents.command()
@click.argument("incident_id", metavar="ID")
@output_option
@server_options
def show(server: Server, incident_id: str, output: str) -> None:
    """Show one incident whole: findings, decisions and why, actions and what became of them."""
    incident = server.get(f"/v1/incidents/{quote(incident_id, safe='')}", IncidentView)
    click.echo(json_text(incident) if output == "json" else _page(incident))


@incidents.command()
@click.argument("incident_id", metavar="ID")
@click.option("--what", help="The id that ID is said to wait for; needed only if it waits for several.")
@server_options
def approve(server: Server, incident_id: str, what: str | None) -> None:
    """Let what incident ID waits for be done: a whole plan, or one step of it."""
    path = f"/v1/incidents/{quote(incident_id, safe='')}"
    awaited = server.get(path, IncidentView).awaits
    if not awaited:
        raise Failure(f"{incident_id} waits for nobody's approval", Exit.USAGE)
    if what is None and len(awaited) > 1:
        listed = "; ".join(f"{each.id} ({each.text})" for each in awaited)
        raise Failure(f"{incident_id} waits for several things, say which with --what: {listed}", Exit.USAGE)
    chosen = what or awaited[0].id
    server.post(f"{path}/approve", Approval(chosen))
    text = next((each.text for each in awaited if each.id == chosen), chosen)
    click.echo(f"approved: {clean(text)} ({clean(chosen)})")


@incidents.command()
@click.argument("incident_id", metavar="ID")
@click.argument("text", required=False, default="")
@server_options
def ack(server: Server, incident_id: str, text: str) -> None:
    """Say that you look after incident ID."""
    server.post(_path(incident_id, "acknowledge"), Words(text))
    click.echo(f"{clean(incident_id)}: you look after it")


@incidents.command()
@click.argument("incident_id", metavar="ID")
@click.argument("text")
@server_options
def note(server: Server, incident_id: str, text: str) -> None:
    """Write a note on incident ID, open or closed."""
    server.post(_path(incident_id, "notes"), Words(text), {"Idempotency-Key": secrets.token_hex(16)})
    click.echo(f"{clean(incident_id)}: noted")


@incidents.command()
@click.argument("incident_id", metavar="ID")
@click.argument("text", required=False, default="")
@server_options
def resolve(server: Server, incident_id: str, text: str) -> None:
    """Say that incident ID is over. What it planned and did not do is cancelled; a node that we hold stays held."""
    server.post(_path(incident_id, "resolve"), Words(text))
    click.echo(f"{clean(incident_id)}: closed")


@incidents.command()
@click.argument("incident_id", metavar="ID")
@click.argument("text", required=False, default="")
@server_options
def reopen(server: Server, incident_id: str, text: str) -> None:
    """Open incident ID again: it was not over. It is decided upon anew, and only a person closes it."""
    server.post(_path(incident_id, "reopen"), Words(text))
    click.echo(f"{clean(incident_id)}: open again")


@incidents.command()
@click.argument("incident_id", metavar="ID")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMS),
    help="Markdown, one HTML page, or JSON. Without it as FILE's name ends, else md.",
)
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write it there, not to standard output.")
@server_options
def postmortem(server: Server, incident_id: str, form: str | None, out: Path | None) -> None:
    """Tell an incident afterwards: timeline, cause, actions, cost in GPU-hours, follow-ups, curves."""
    ending = out.suffix.lstrip(".").lower() if out is not None else ""
    form = form or (ending if ending in FORMS else FORMS[0])
    page = server.page(f"/v1/incidents/{quote(incident_id, safe='')}/postmortem", format=form)
    if out is None:
        click.echo(page, nl=False)
        return
    out.write_bytes(page)
    click.echo(f"{out}: {len(page)} bytes", err=True)


@incidents.command("reset-breaker")
@click.argument("text", required=False, default="")
@server_options
def reset_breaker(server: Server, text: str) -> None:
    """Say that you have looked why the breaker opened, and let nodes be isolated again."""
    server.post("/v1/breaker/reset", Words(text))
    click.echo("the breaker is closed")


def _path(incident_id: str, word: str) -> str:
    return f"/v1/incidents/{quote(incident_id, safe='')}/{word}"


def _title(incident: IncidentView) -> str:
    marked = incident.injected and "injected" not in incident.title
    return f"[injected] {incident.title}" if marked else incident.title


def _page(incident: IncidentView) -> str:
    parts = [
        facts(
            [
                ("incident", incident.id),
                ("what", _title(incident)),
                ("node", incident.node),
                ("state", incident.state),
                ("opened", moment(incident.opened_at)),
                ("closed", moment(incident.closed_at)),
                ("outcome", incident.outcome),
                ("looked after by", incident.acknowledged_by),
            ]
        )
    ]
    if incident.awaits:
        parts.append(table(("WAITS FOR APPROVAL", "ID"), [(a.text, a.id) for a in incident.awaits]))
    if incident.notes:
        parts.append(table(("NOTED", "BY", "NOTE"), [(moment(n.at), n.actor, n.text) for n in incident.notes]))
    if incident.steps:
        parts.append(table(("STEP", "STATE", "DETAIL"), [(s.text, s.state, s.detail) for s in incident.steps]))
    if incident.findings:
        parts.append(findings_table(incident.findings))
    if incident.decisions:
        parts.append(_decisions(incident.decisions))
    if incident.actions:
        actions = [
            (moment(a.planned_at), a.verb, a.node, a.state, moment(a.finished_at), str(a.attempts), a.detail)
            for a in incident.actions
        ]
        parts.append(table(("PLANNED", "ACTION", "NODE", "STATE", "FINISHED", "TRIES", "DETAIL"), actions))
    return "\n\n".join(parts)


def _decisions(decisions: Sequence[DecisionView]) -> str:
    """A row for each, and below it why and what each guard said, a line each: together they fill no terminal's width."""
    rows = [(moment(each.at), each.answer, each.rule, each.policy) for each in decisions]
    header, *lines = table(("DECIDED", "ANSWER", "RULE", "POLICY"), rows).splitlines()
    shown = [header]
    for line, decision in zip(lines, decisions, strict=True):
        said = [decision.reason, *(guard for guard in decision.guards if guard not in decision.reason)]
        shown += [line, *(f"  {clean(each)}" for each in said if each)]
    return "\n".join(shown)
