"""Every route, in one table: who may call it, what goes in, what comes out."""

from __future__ import annotations

from typing import Any

from remediator.api import (
    actions,
    alerts,
    audit,
    cluster,
    credentials,
    evidence,
    hands,
    health,
    jobs,
    lists,
    nodes,
    operators,
    overview,
    placement,
    postmortems,
    stream,
    telemetry,
)
from remediator.api.access import Access
from remediator.api.endpoint import Endpoint, Handler, Query
from remediator.model.credentials import TokenList
from remediator.model.evidence import EvidenceList
from remediator.model.views import (
    Approval,
    EventList,
    HoldWish,
    IncidentList,
    IncidentView,
    NodeList,
    NodeView,
    Rotation,
    StatusView,
    TokenWish,
    UncordonWish,
    Words,
)
from remediator.model.views_alerts import (
    AlertList,
    AlertTest,
    AlertTested,
    SilenceList,
    SilenceView,
    SilenceWish,
)
from remediator.model.views_audit import AuditView
from remediator.model.views_jobs import GpuList, JobList, JobView
from remediator.model.views_overview import OverviewView
from remediator.model.views_telemetry import TelemetryView
from remediator.model.views_watch import LemonList, StragglerList
from remediator.model.views_work import ActionList, AwaitingList, BreakerView, ModeWish
from vocabulary.hazard import JobHazard, Placement
from vocabulary.order import OrderUpdate
from vocabulary.wire import Enrolment, NewToken, OrdersReply, Report, ReportReply

WAIT = Query("wait_s", "number", "wait up to so many seconds for something new")
LIMIT = Query("limit", "integer", "so many at most")
AFTER = Query("after", "integer", "number of the last event that is known")
IF_MATCH = Query("If-Match", "string", "the incident's ETag: only if it is still so")
KEY = Query("Idempotency-Key", "string", "names this request, so that it can be repeated")
SINCE = Query("since", "number", "only from then on, UTC seconds")
RESUME = Query("Last-Event-ID", "string", "go on after this event")


def _get(
    path: str, access: Access, handler: Handler, answer: Any, about: str, query: tuple[Query, ...] = (), **more: Any
) -> Endpoint:
    return Endpoint(
        method="GET", path=path, access=access, handler=handler, answer=answer, about=about, query=query, **more
    )


def _post(
    path: str, access: Access, handler: Handler, body: Any, answer: Any, about: str, headers: tuple[Query, ...] = ()
) -> Endpoint:
    return Endpoint(
        method="POST", path=path, access=access, handler=handler, body=body, answer=answer, about=about, headers=headers
    )


_NODE, _ADMIN, _OPERATOR, _VIEWER, _ANYONE = Access.NODE, Access.ADMIN, Access.OPERATOR, Access.VIEWER, Access.ANYONE
_INCIDENT = "/v1/incidents/{incident}"

ENDPOINTS: tuple[Endpoint, ...] = (
    _post("/v1/enrol", Access.JOIN, credentials.enrol, Enrolment, NewToken, "A node's own token for a join secret."),
    _post("/v1/nodes/{node}/report", _NODE, nodes.report, Report, ReportReply, "Durable when answered."),
    _get(
        "/v1/nodes/{node}/orders",
        _NODE,
        nodes.orders,
        OrdersReply,
        "Every open order; waits for one that is not known.",
        (WAIT, Query("known", "string", "id of an order that the node has", many=True)),
    ),
    _post("/v1/nodes/{node}/orders/{order:path}", _NODE, nodes.answer, OrderUpdate, None, "How far an order is."),
    _post(
        "/v1/nodes/{node}/evidence/{order:path}",
        _NODE,
        evidence.take,
        "application/gzip",
        None,
        "The bundle that an order asked for.",
    ),
    _get("/v1/hazard/{job:path}", Access.JOB, jobs.hazard, JobHazard, "How likely a job's nodes are to fail."),
    _get("/v1/jobs", _VIEWER, lists.show_jobs, JobList, "Every job with ranks, by name; without its ranks."),
    _get("/v1/jobs/{job:path}", _VIEWER, lists.show_job, JobView, "One job, with its ranks."),
    _get(
        "/v1/gpus",
        _VIEWER,
        lists.show_gpus,
        GpuList,
        "GPUs, by node and index.",
        (
            Query("node", "string", "only of nodes that fit this shell pattern"),
            Query("after", "string", "only after this one, NODE/INDEX"),
            LIMIT,
        ),
    ),
    _get(
        "/v1/placement",
        _VIEWER,
        placement.placement,
        Placement,
        "Which free nodes are least likely to fail.",
        (Query("nodes", "integer", "so many are wanted"),),
    ),
    _get(
        "/v1/status", _VIEWER, overview.status, StatusView, "Counts, the mode, and what keeps automation from acting."
    ),
    _get(
        "/v1/overview",
        _VIEWER,
        overview.overview,
        OverviewView,
        "The cluster in one look: the status, the worst incidents, what waits for people, who is not heard.",
        (Query("incidents", "integer", "so many are told at most, the worst first"),),
    ),
    _get(
        "/v1/nodes",
        _VIEWER,
        operators.nodes,
        NodeList,
        "Nodes, by name.",
        (Query("after", "string", "only names after this one"), LIMIT),
    ),
    _get("/v1/nodes/{node}", _VIEWER, operators.node, NodeView, "One node, with GPUs, ranks and findings."),
    _get("/v1/nodes/{node}/history", _VIEWER, lists.show_history, EventList, "Its audit log, newest first.", (LIMIT,)),
    _get(
        "/v1/nodes/{node}/telemetry",
        _VIEWER,
        telemetry.show,
        TelemetryView,
        "The last hour of one node, as curves; asks the node to tell it.",
        (WAIT,),
    ),
    _post("/v1/nodes/{node}/hold", _OPERATOR, hands.hold, HoldWish, None, "Hands off this node."),
    _post("/v1/nodes/{node}/release", _OPERATOR, hands.release, Words, None, "No longer."),
    _post("/v1/nodes/{node}/cordon", _OPERATOR, hands.cordon, Words, None, "Out of service, in the caller's name."),
    _post(
        "/v1/nodes/{node}/uncordon", _OPERATOR, hands.uncordon, UncordonWish, None, "Into service, whoever holds it."
    ),
    _post("/v1/nodes/{node}/retire", _OPERATOR, hands.retire, Words, None, "It is no part of the cluster any more."),
    _post("/v1/nodes/{node}/unretire", _OPERATOR, hands.unretire, Words, None, "It is one again, on probation."),
    _get(
        "/v1/incidents",
        _VIEWER,
        operators.incidents,
        IncidentList,
        "Incidents, newest first.",
        (Query("state", "string", "open: every one that is open; without it the newest, open or not"),),
    ),
    _get(_INCIDENT, _VIEWER, operators.incident, IncidentView, "One incident, whole; its state is named by ETag."),
    _get(
        f"{_INCIDENT}/postmortem",
        _VIEWER,
        postmortems.show,
        "text/markdown",
        "The incident told afterwards.",
        (Query("format", "string", "md, html or json"),),
    ),
    _get(
        f"{_INCIDENT}/evidence",
        _OPERATOR,
        evidence.show,
        EvidenceList,
        "What bundles there are; with 'order', that bundle.",
        (Query("order", "string", "the order that asked for it"),),
    ),
    _post(f"{_INCIDENT}/approve", _OPERATOR, operators.approve, Approval, None, "Let what it waits for be done."),
    _post(f"{_INCIDENT}/acknowledge", _OPERATOR, actions.acknowledge, Words, None, "I look after it.", (IF_MATCH,)),
    _post(f"{_INCIDENT}/notes", _OPERATOR, actions.note, Words, None, "Write a note.", (IF_MATCH, KEY)),
    _post(f"{_INCIDENT}/resolve", _OPERATOR, actions.resolve, Words, None, "It is over.", (IF_MATCH,)),
    _post(f"{_INCIDENT}/reopen", _OPERATOR, actions.reopen, Words, None, "It was not over.", (IF_MATCH,)),
    _get(
        "/v1/actions",
        _VIEWER,
        lists.show_actions,
        ActionList,
        "Actions, newest first.",
        (Query("state", "string", "open, ended or all; without it, open"), LIMIT),
    ),
    _post("/v1/actions/{action:path}/cancel", _OPERATOR, cluster.cancel, Words, None, "Do not do it after all."),
    _post("/v1/mode", _OPERATOR, cluster.set_mode, ModeWish, None, "How far automation may go from now on."),
    _get("/v1/alerts", _VIEWER, alerts.show, AlertList, "What people were told or are to be, newest first.", (LIMIT,)),
    _get("/v1/alerts/silences", _VIEWER, alerts.show_silences, SilenceList, "Silences that have not ended."),
    _post("/v1/alerts/silences", _OPERATOR, alerts.silence, SilenceWish, SilenceView, "Tell nobody for a time."),
    _post("/v1/alerts/silences/{silence}/end", _OPERATOR, alerts.end, Words, None, "Tell people again."),
    _post("/v1/alerts/test", _OPERATOR, alerts.test, AlertTest, AlertTested, "Send a receiver a test message."),
    _get("/v1/awaiting", _VIEWER, lists.show_awaiting, AwaitingList, "What waits for a person's word."),
    _get("/v1/lemons", _VIEWER, lists.show_lemons, LemonList, "Nodes whose past speaks against them."),
    _get("/v1/stragglers", _VIEWER, lists.show_stragglers, StragglerList, "What holds jobs back."),
    _get("/v1/breaker", _VIEWER, lists.show_breaker, BreakerView, "Open or not, and every limit with its figures."),
    _post("/v1/breaker/reset", _OPERATOR, actions.reset_breaker, Words, None, "Let nodes be isolated again."),
    _get("/v1/events", _VIEWER, operators.events, EventList, "The audit log, in order.", (AFTER, WAIT, SINCE)),
    _get(
        "/v1/audit",
        _VIEWER,
        audit.search,
        AuditView,
        "The audit log asked backwards: newest first, with filters.",
        (
            *(Query(name, "string", f"only lines with this {name}") for name in ("node", "incident", "kind", "actor")),
            SINCE,
            Query("until", "number", "only from before then, UTC seconds"),
            Query("before", "integer", "only lines before this number"),
            LIMIT,
        ),
    ),
    _get(
        "/v1/events/stream",
        _VIEWER,
        stream.stream,
        "text/event-stream",
        "The audit log as it grows.",
        (AFTER,),
        headers=(RESUME,),
    ),
    _get("/v1/tokens", _ADMIN, credentials.listed, TokenList, "All tokens, without their text."),
    _post("/v1/tokens", _ADMIN, credentials.issue, TokenWish, NewToken, "A new token, told this once."),
    _post("/v1/tokens/rotate", _ADMIN, credentials.rotate, Rotation, NewToken, "A new token; the old ones end soon."),
    _post("/v1/tokens/{token}/revoke", _ADMIN, credentials.revoke, None, None, "End a token now."),
    _get("/v1/openapi.json", _ANYONE, health.openapi, "application/json", "This document."),
    _get("/healthz", _ANYONE, health.healthz, health.Readiness, "Is this the one to ask?"),
    _get("/livez", _ANYONE, health.livez, "text/plain", "Does it live?"),
    _get("/metrics", _ANYONE, health.metrics, "text/plain", "Prometheus' metrics."),
)
