"""All routes in one table: access, input and output."""

from __future__ import annotations

from typing import Any

from remediator.api import (
    alert_handlers,
    audit_handlers,
    batch_handlers,
    cluster_handlers,
    event_stream,
    evidence_handlers,
    hazard_handlers,
    health_handlers,
    incident_handlers,
    list_handlers,
    node_override_handlers,
    operator_handlers,
    overview_handlers,
    placement_handlers,
    postmortem_handlers,
    report_handlers,
    stack_handlers,
    telemetry_handlers,
    token_handlers,
)
from remediator.api.access_control import Access
from remediator.api.endpoint import Endpoint, Handler, Query, make_get_endpoint, make_post_endpoint
from remediator.api.query_parameters import AFTER, IF_MATCH, KEY, LIMIT, RESUME, SINCE, WAIT
from remediator.model.credentials import TokenList
from remediator.model.message_batch import AllOrders
from remediator.model.views import (
    Approval,
    CommandText,
    EventList,
    HoldRequest,
    IncidentList,
    IncidentView,
    NodeList,
    NodeView,
    Rotation,
    StatusView,
    TokenRequest,
    UncordonRequest,
)
from remediator.model.views_actions import ActionList, AwaitingList, BreakerView, ModeRequest
from remediator.model.views_alerts import AlertList, AlertTest, AlertTested, SilenceList, SilenceRequest, SilenceView
from remediator.model.views_audit import AuditView
from remediator.model.views_detectors import LemonList, StragglerList
from remediator.model.views_evidence import EvidenceList, IncidentStacks
from remediator.model.views_jobs import GpuList, JobList, JobView
from remediator.model.views_overview import OverviewView
from remediator.model.views_telemetry import TelemetryView
from vocabulary.messages.job_hazard import JobHazard, Placement
from vocabulary.messages.wire import Enrolment, NewToken, OrdersReply, Report, ReportReply
from vocabulary.order import OrderUpdate

_get, _post = make_get_endpoint, make_post_endpoint
_NODE, _ADMIN, _OPERATOR, _VIEWER, _ANYONE = Access.NODE, Access.ADMIN, Access.OPERATOR, Access.VIEWER, Access.ANYONE
_INCIDENT = "/v1/incidents/{incident}"


def _command(path: str, handler: Handler, about: str, *headers: Query, body: Any = CommandText) -> Endpoint:
    """An operator's command, which takes only a text if not said otherwise."""
    return _post(path, _OPERATOR, handler, body, None, about, headers)


ENDPOINTS: tuple[Endpoint, ...] = (
    _post(
        "/v1/enrol",
        Access.JOIN,
        token_handlers.enrol_node,
        Enrolment,
        NewToken,
        "Exchange a join secret for the node's own token.",
    ),
    _post(
        "/v1/nodes/{node}/report",
        _NODE,
        report_handlers.accept_report,
        Report,
        ReportReply,
        "Report a node's state; durable when answered.",
    ),
    _post(
        "/v1/nodes/{node}/heartbeat",
        _NODE,
        report_handlers.accept_heartbeat,
        "application/msgpack",
        ReportReply,
        "Report that a node has no news since its last report; 409: send a whole one.",
    ),
    _get(
        "/v1/nodes/{node}/orders",
        _NODE,
        report_handlers.poll_orders,
        OrdersReply,
        "A node's open orders; waits for a new one.",
        (WAIT, Query("known", "string", "ID of an order that the node has", many=True)),
    ),
    _post(
        "/v1/nodes/{node}/orders/{order:path}",
        _NODE,
        report_handlers.accept_order_update,
        OrderUpdate,
        None,
        "Report the progress of an order.",
    ),
    _post(
        "/v1/nodes/{node}/evidence/{order:path}",
        _NODE,
        evidence_handlers.store_evidence_bundle,
        "application/gzip",
        None,
        "Upload the evidence bundle of an order.",
    ),
    _post(
        "/v1/reports",
        Access.INGEST,
        batch_handlers.accept_message_batch,
        "application/msgpack",
        "application/msgpack",
        "Deliver messages of many nodes; each is durable when answered.",
    ),
    _get(
        "/v1/orders",
        Access.INGEST,
        batch_handlers.poll_all_orders,
        AllOrders,
        "The open orders of all nodes; waits until they differ from those known.",
        (WAIT, Query("known", "string", "'version' of the last answer")),
    ),
    _get(
        "/v1/hazard/{job:path}",
        Access.JOB,
        hazard_handlers.show_job_hazard,
        JobHazard,
        "How likely a job's nodes are to fail.",
    ),
    _get("/v1/jobs", _VIEWER, list_handlers.show_jobs, JobList, "Every job with ranks, by name; without its ranks."),
    _get("/v1/jobs/{job:path}", _VIEWER, list_handlers.show_job, JobView, "One job, with its ranks."),
    _get(
        "/v1/gpus",
        _VIEWER,
        list_handlers.show_gpus,
        GpuList,
        "GPUs, by node and index.",
        (
            Query("node", "string", "only nodes that match this shell pattern"),
            Query("after", "string", "only after this one, NODE/INDEX"),
            LIMIT,
        ),
    ),
    _get(
        "/v1/placement",
        _VIEWER,
        placement_handlers.show_placement,
        Placement,
        "The free nodes that are least likely to fail.",
        (Query("nodes", "integer", "number of nodes wanted"),),
    ),
    _get(
        "/v1/status",
        _VIEWER,
        overview_handlers.show_status,
        StatusView,
        "Counts, the mode, and what blocks automation.",
    ),
    _get(
        "/v1/overview",
        _VIEWER,
        overview_handlers.show_overview,
        OverviewView,
        "Status, worst incidents, approvals and silent nodes.",
        (Query("incidents", "integer", "at most this many, worst first"),),
    ),
    _get(
        "/v1/nodes",
        _VIEWER,
        operator_handlers.list_nodes,
        NodeList,
        "Nodes, by name.",
        (Query("after", "string", "only names after this one"), LIMIT),
    ),
    _get(
        "/v1/nodes/{node}", _VIEWER, operator_handlers.show_node, NodeView, "One node, with GPUs, ranks and findings."
    ),
    _get(
        "/v1/nodes/{node}/history",
        _VIEWER,
        list_handlers.show_node_history,
        EventList,
        "The node's audit events, newest first.",
        (LIMIT,),
    ),
    _get(
        "/v1/nodes/{node}/telemetry",
        _VIEWER,
        telemetry_handlers.show_node_telemetry,
        TelemetryView,
        "The node's last hour of telemetry, requested from the node.",
        (WAIT,),
    ),
    _command("/v1/nodes/{node}/hold", node_override_handlers.hold_node, "Place an operator hold.", body=HoldRequest),
    _command("/v1/nodes/{node}/release", node_override_handlers.release_node, "End the operator hold."),
    _command("/v1/nodes/{node}/cordon", node_override_handlers.cordon_node, "Cordon the node in the caller's name."),
    _command(
        "/v1/nodes/{node}/uncordon",
        node_override_handlers.uncordon_node,
        "Uncordon the node, whoever holds it.",
        body=UncordonRequest,
    ),
    _command("/v1/nodes/{node}/retire", node_override_handlers.retire_node, "Remove the node from the cluster."),
    _command(
        "/v1/nodes/{node}/unretire",
        node_override_handlers.unretire_node,
        "Return the node to the cluster, on probation.",
    ),
    _get(
        "/v1/incidents",
        _VIEWER,
        operator_handlers.list_incidents,
        IncidentList,
        "Incidents, newest first.",
        (Query("state", "string", "open: all open ones; by default the newest, open or not"),),
    ),
    _get(
        _INCIDENT,
        _VIEWER,
        operator_handlers.show_incident,
        IncidentView,
        "One incident in full; the ETag identifies its state.",
    ),
    _get(
        f"{_INCIDENT}/postmortem",
        _VIEWER,
        postmortem_handlers.show_postmortem,
        "text/markdown",
        "The incident's post-mortem.",
        (Query("format", "string", "md, html or json"),),
    ),
    _get(
        f"{_INCIDENT}/evidence",
        _OPERATOR,
        evidence_handlers.show_evidence,
        EvidenceList,
        "List the bundles; with 'order', return that bundle.",
        (Query("order", "string", "the order that requested it"),),
    ),
    _get(
        f"{_INCIDENT}/stacks",
        _OPERATOR,
        stack_handlers.show_stacks,
        IncidentStacks,
        "Where the ranks of its jobs were, as one tree per job.",
    ),
    _command(
        f"{_INCIDENT}/approve", operator_handlers.approve_plan_step, "Approve what the incident awaits.", body=Approval
    ),
    _command(f"{_INCIDENT}/acknowledge", incident_handlers.acknowledge_incident, "Assign it to the caller.", IF_MATCH),
    _command(f"{_INCIDENT}/notes", incident_handlers.add_incident_note, "Add a note.", IF_MATCH, KEY),
    _command(f"{_INCIDENT}/resolve", incident_handlers.resolve_incident, "Close it.", IF_MATCH),
    _command(f"{_INCIDENT}/reopen", incident_handlers.reopen_incident, "Open it again.", IF_MATCH),
    _get(
        "/v1/actions",
        _VIEWER,
        list_handlers.show_actions,
        ActionList,
        "Actions, newest first.",
        (Query("state", "string", "open, ended or all; default: open"), LIMIT),
    ),
    _command("/v1/actions/{action:path}/cancel", cluster_handlers.cancel_action, "Cancel the action."),
    _command("/v1/mode", cluster_handlers.set_automation_mode, "Set the automation mode.", body=ModeRequest),
    _get("/v1/alerts", _VIEWER, alert_handlers.list_alerts, AlertList, "Notifications, newest first.", (LIMIT,)),
    _get("/v1/alerts/silences", _VIEWER, alert_handlers.list_silences, SilenceList, "Silences that have not ended."),
    _post(
        "/v1/alerts/silences",
        _OPERATOR,
        alert_handlers.create_silence,
        SilenceRequest,
        SilenceView,
        "Mute notifications for a time.",
    ),
    _command("/v1/alerts/silences/{silence}/end", alert_handlers.end_silence, "End a silence."),
    _post(
        "/v1/alerts/test",
        _OPERATOR,
        alert_handlers.send_test_alert,
        AlertTest,
        AlertTested,
        "Send a receiver a test message.",
    ),
    _get("/v1/awaiting", _VIEWER, list_handlers.show_awaiting, AwaitingList, "What awaits approval."),
    _get("/v1/lemons", _VIEWER, list_handlers.show_lemons, LemonList, "Suspected lemon nodes."),
    _get("/v1/stragglers", _VIEWER, list_handlers.show_stragglers, StragglerList, "Stragglers: what slows jobs down."),
    _get("/v1/breaker", _VIEWER, list_handlers.show_breaker, BreakerView, "The breaker, and every limit with its use."),
    _command("/v1/breaker/reset", incident_handlers.reset_circuit_breaker, "Allow isolations again."),
    _get(
        "/v1/events",
        _VIEWER,
        operator_handlers.poll_events,
        EventList,
        "The audit log, in order.",
        (AFTER, WAIT, SINCE),
    ),
    _get(
        "/v1/audit",
        _VIEWER,
        audit_handlers.search_audit_log,
        AuditView,
        "Search the audit log, newest first.",
        (
            *(Query(name, "string", f"only events with this {name}") for name in ("node", "incident", "kind", "actor")),
            SINCE,
            Query("until", "number", "only events before this time, UTC seconds"),
            Query("before", "integer", "only events before this number"),
            LIMIT,
        ),
    ),
    _get(
        "/v1/events/stream",
        _VIEWER,
        event_stream.stream_events,
        "text/event-stream",
        "The audit log as it grows.",
        (AFTER,),
        headers=(RESUME,),
    ),
    _get("/v1/tokens", _ADMIN, token_handlers.list_tokens, TokenList, "All tokens, without their text."),
    _post(
        "/v1/tokens",
        _ADMIN,
        token_handlers.issue_token,
        TokenRequest,
        NewToken,
        "Issue a token; only this response contains it.",
    ),
    _post(
        "/v1/tokens/rotate",
        _ADMIN,
        token_handlers.rotate_token,
        Rotation,
        NewToken,
        "Replace a name's tokens; the old ones end soon.",
    ),
    _post("/v1/tokens/{token}/revoke", _ADMIN, token_handlers.revoke_token, None, None, "Revoke a token."),
    _get("/v1/openapi.json", _ANYONE, health_handlers.handle_openapi, "application/json", "This document."),
    _get("/healthz", _ANYONE, health_handlers.handle_healthz, health_handlers.Readiness, "Readiness."),
    _get("/livez", _ANYONE, health_handlers.handle_livez, "text/plain", "Liveness."),
    _get("/metrics", _ANYONE, health_handlers.handle_metrics, "text/plain", "Prometheus metrics."),
)
