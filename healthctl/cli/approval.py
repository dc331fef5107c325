"""Shows an action that waits for approval, asks for confirmation and approves it."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from healthctl.api_client.remediator_client import RemediatorClient
from healthctl.api_client.resource_names import node_path
from healthctl.cli.consent import Consent
from healthctl.cli.screen import Screen
from healthctl.pages.incident_page import format_proposed_steps
from healthctl.rendering.blocks import Block, Column, Facts, Rows, format_timestamp
from remediator.model.views import Approval, NodeView, StatusView
from remediator.model.views_actions import AwaitingView, BreakerView
from vocabulary.identity import NODE_NAME

AWAITING: Sequence[Column[AwaitingView]] = (
    Column("INCIDENT", lambda a: a.incident),
    Column("NODE", lambda a: a.node),
    Column("SINCE", lambda a: format_timestamp(a.since)),
    Column("ID", lambda a: a.what),
    Column("WAITS FOR APPROVAL", lambda a: a.text, prose=True),
    Column("ACTION", lambda a: format_proposed_steps(a.proposed), prose=True),
    Column("BECAUSE", lambda a: a.title, prose=True),
)


def approve_action(server: RemediatorClient, consent: Consent, wanted: AwaitingView) -> None:
    """Ask for confirmation, then approve the action."""
    if consent.confirm(f"approve {wanted.text} of {wanted.incident}", lambda: _preview_approval(server, wanted)):
        server.post(f"/v1/incidents/{quote(wanted.incident, safe='')}/approve", Approval(wanted.what))
        Screen().say(f"approved: {wanted.text} ({wanted.what})")


def _preview_approval(server: RemediatorClient, wanted: AwaitingView) -> Sequence[Block]:
    from healthctl.pages.blast_radius import cluster_facts, render_blast_radius

    status, breaker = server.get("/v1/status", StatusView), server.get("/v1/breaker", BreakerView)
    blocks: list[Block] = [Rows([wanted], AWAITING)]
    if NODE_NAME.fullmatch(wanted.node):
        return [*blocks, *render_blast_radius(server.get(node_path(wanted.node), NodeView), status, breaker)]
    about = Facts([("about", f"{wanted.node}: several nodes or the whole cluster")])
    return [*blocks, about, cluster_facts(status, breaker)]
