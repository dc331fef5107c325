"""Letting be done what waits for a person: shown first, then asked."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from healthctl.consent import Consent
from healthctl.incident_page import proposal
from healthctl.naming import node_path
from healthctl.output import Block, Column, Facts, Rows, moment
from healthctl.screen import Screen
from healthctl.server import Server
from remediator.model.views import Approval, NodeView, StatusView
from remediator.model.views_work import AwaitingView, BreakerView
from vocabulary.identity import NODE_NAME

AWAITING: Sequence[Column[AwaitingView]] = (
    Column("INCIDENT", lambda a: a.incident),
    Column("NODE", lambda a: a.node),
    Column("SINCE", lambda a: moment(a.since)),
    Column("ID", lambda a: a.what),
    Column("WAITS FOR APPROVAL", lambda a: a.text, prose=True),
    Column("WILL BE DONE", lambda a: proposal(a.proposed), prose=True),
    Column("BECAUSE", lambda a: a.title, prose=True),
)


def approve(server: Server, consent: Consent, wanted: AwaitingView) -> None:
    """Ask, and let it be done."""
    if consent.given(f"approve {wanted.text} of {wanted.incident}", lambda: _preview(server, wanted)):
        server.post(f"/v1/incidents/{quote(wanted.incident, safe='')}/approve", Approval(wanted.what))
        Screen().say(f"approved: {wanted.text} ({wanted.what})")


def _preview(server: Server, wanted: AwaitingView) -> Sequence[Block]:
    from healthctl.blast_radius import blast_radius, cluster_facts

    status, breaker = server.get("/v1/status", StatusView), server.get("/v1/breaker", BreakerView)
    blocks: list[Block] = [Rows([wanted], AWAITING)]
    if NODE_NAME.fullmatch(wanted.node):
        return [*blocks, *blast_radius(server.get(node_path(wanted.node), NodeView), status, breaker)]
    about = Facts([("about", f"{wanted.node}: what several nodes share, or the whole cluster")])
    return [*blocks, about, cluster_facts(status, breaker)]
