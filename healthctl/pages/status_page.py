"""Renders the cluster's status on one screen: what is broken, what was done and why, what comes next, and how to stop it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from healthctl.durations import format_duration_short
from healthctl.pages.incident_page import action_outcome, incident_title
from healthctl.pages.next_step import describe_next_step, is_stoppable
from healthctl.rendering.blocks import Block, Cell, Facts, Line, Tone, Value, format_timestamp, value_text
from remediator.model.blocked_reasons import mode_sentence_prefix, parse_incident_blocker
from remediator.model.views import ActionView, IncidentView, NodeView, StatusView
from remediator.model.views_actions import AwaitingView
from remediator.model.views_overview import IncidentSummary, NamedNodes, OverviewView, ReportFreshness, SilencedView
from vocabulary.finding import Finding, Severity
from vocabulary.text.plurals import format_count

TOLD_MAX, TOLD_WIDE_MAX = 3, 20  # incidents shown in full
LISTED_MAX, LISTED_WIDE_MAX = 6, 1000  # blockers or approvals listed; the rest is counted
DONE_MAX = 4  # actions listed per incident
_GOOD_MODE = "act"


def is_well(status: StatusView) -> bool:
    """Whether nothing is broken and nothing stops automation except the configured mode."""
    chosen = mode_sentence_prefix(status.mode)
    hindered = [why for why in status.blocked if status.mode_by or not why.startswith(chosen)]
    bad = status.nodes_by_health.get("unhealthy", 0) + status.nodes_by_health.get("unknown", 0)
    return not (status.incidents_open or status.breaker or hindered or bad > status.nodes_by_state.get("retired", 0))


def find_incident_node(view: OverviewView, incident: IncidentView) -> NodeView | None:
    """The incident's node; None if the incident is about several."""
    return next((node for node in view.nodes if node.node == incident.node), None)


def render_status_page(view: OverviewView, listed_max: int = LISTED_MAX) -> Iterator[Block]:
    """Render one screen, with at most `listed_max` blockers and approvals."""
    yield Line(_format_headline(view))
    yield from _render_blockers(view, listed_max)
    yield Facts([*_status_facts(view), *_operator_facts(view)])
    if view.awaiting:
        yield Facts([("awaiting you", _format_pending_approval(each)) for each in view.awaiting[:listed_max]])
    if (more := len(view.awaiting) + view.awaiting_more - listed_max) > 0:
        yield Line(f"and {more} more awaiting approval: healthctl actions awaiting")
    for incident in view.incidents:
        yield Facts(_incident_facts(incident, view.at, find_incident_node(view, incident)))
    if (more := view.incidents_open - len(view.incidents)) > 0:
        yield Line(f"and {format_count(more, 'more open incident')}: healthctl incidents list --state open")
    if view.mode == _GOOD_MODE:
        yield Line("stop automation:     healthctl mode observe 'WHY'")
        yield Line("take over one node:  healthctl nodes hold NODE 'WHY'")


def _render_blockers(view: OverviewView, listed_max: int) -> Iterator[Line]:
    """What stops automation and how to resume it, then waiting incidents that are not shown below."""
    if hindered := _list_cluster_blockers(view):
        yield Line(Cell("automation restricted:", Tone.BAD if not is_well(view) else Tone.WARN))
        yield from _render_limited_list(hindered, 0, listed_max)
        if view.breaker:
            yield Line("resume: healthctl breaker reset 'WHY IT OPENED'", 2)
        if view.mode != _GOOD_MODE and view.mode_by:
            yield Line("return to the configured mode: healthctl mode config", 2)
    shown = {incident.id for incident in view.incidents}
    ones = [(why, parse_incident_blocker(why)) for why in view.blocked]
    if waiting := [why for why, one in ones if one is not None and one.incident not in shown]:
        yield Line("incidents waiting:")
        yield from _render_limited_list(waiting, view.blocked_more, listed_max)
    if view.lacking:
        yield Line(Cell("incomplete answer:", Tone.WARN))
        yield from _render_limited_list(view.lacking, 0, listed_max)


def _list_cluster_blockers(view: OverviewView) -> list[str]:
    """What limits automation in the whole cluster, not in one incident only."""
    return [why for why in view.blocked if parse_incident_blocker(why) is None]


def _render_limited_list(words: Sequence[str], more: int, most: int) -> Iterator[Line]:
    """The first `most` texts and the number of the rest; `more` counts those that are not in `words`."""
    for why in words[:most]:
        yield Line(why, 2)
    if (left := len(words) - most + more) > 0:
        yield Line(f"and {left} more: healthctl status -o wide", 2)


def _format_headline(view: OverviewView) -> Value:
    if is_well(view):
        return Cell(f"{view.cluster} is healthy at {format_timestamp(view.at)}", Tone.GOOD)
    bad = {name: view.nodes_by_health.get(name, 0) for name in ("unhealthy", "unknown")}
    wrong = [format_count(view.incidents_open, "open incident")] * bool(view.incidents_open)
    wrong += [f"{format_count(count, 'node')} {name}" for name, count in bad.items() if count]
    wrong += ["automation limited"] * bool(_list_cluster_blockers(view) or view.breaker)
    return Cell(f"{view.cluster}: {', '.join(wrong)}, at {format_timestamp(view.at)}", Tone.BAD)


def _status_facts(view: StatusView) -> list[tuple[str, Value]]:
    mode = f"{view.mode}, {view.mode_by}" if view.mode_by else f"{view.mode}, as configured"
    out = f"{view.isolated} of at most {format_count(view.isolated_max, 'node')}"
    return [
        ("mode", Cell(mode, Tone.GOOD if view.mode == _GOOD_MODE else Tone.WARN)),
        ("leader", view.leader or f"epoch {view.epoch}"),
        ("breaker", Cell(view.breaker, Tone.BAD) if view.breaker else ""),
        ("nodes", f"{view.nodes_total}{_format_counts(view.nodes_by_state)}"),
        ("health", _format_counts(view.nodes_by_health).removeprefix(": ")),
        ("isolated", Cell(out, Tone.WARN) if view.isolated >= view.isolated_max > 0 else out),
        ("under way", format_count(view.actions_open, "action")),
        ("scheduler", view.scheduler if view.scheduler == "ok" else Cell(view.scheduler or "unknown", Tone.BAD)),
        ("remediator", f"{view.version}, policy {view.policy}"),
    ]


def _operator_facts(view: OverviewView) -> list[tuple[str, Value]]:
    """Missing reports, operators' cordons and silences, and unhealthy nodes without an incident."""
    return [
        ("reports", _format_report_freshness(view.heard, view.at)),
        ("cordoned", _format_node_list(view.cordoned, "by operators; lift: healthctl nodes uncordon NODE")),
        ("silenced", _format_silences(view.silenced)),
        (
            "no incident",
            _format_node_list(view.untended, "unhealthy without an incident; see: healthctl nodes show NODE"),
        ),
    ]


def _format_report_freshness(heard: ReportFreshness, now: float) -> Value:
    """The age of the data: how many nodes report in time, and the oldest report."""
    if not heard.nodes:
        return ""
    oldest = "" if heard.oldest_at is None else f"; the oldest report is {_format_age(now - heard.oldest_at)} old"
    if heard.fresh == heard.nodes:
        return f"all nodes report in time{oldest}"
    never = f", {heard.never} not since this controller became leader" if heard.never else ""
    return Cell(f"{heard.fresh} of {format_count(heard.nodes, 'node')} in time{never}{oldest}", Tone.WARN)


def _format_node_list(nodes: NamedNodes, what: str) -> str:
    shown = nodes.names[:LISTED_MAX]
    more = f" and {nodes.count - len(shown)} more" if nodes.count > len(shown) else ""
    return f"{', '.join(shown)}{more}: {what}" if nodes.count else ""


def _format_silences(silenced: SilencedView) -> str:
    if not silenced.count:
        return ""
    return f"{format_count(silenced.count, 'silence')}, the first ends {format_timestamp(silenced.ends)}: healthctl alerts silences"


def _format_age(seconds: float) -> str:
    return format_duration_short(round(max(1.0, seconds)))


def _format_pending_approval(waiting: AwaitingView) -> Value:
    what = f"{waiting.text} on {waiting.node}, since {format_timestamp(waiting.since)}: {waiting.title}"
    return Cell(f"{what}; approve: healthctl actions approve {waiting.what}", Tone.WARN)


def _incident_facts(incident: IncidentSummary, now: float, node: NodeView | None) -> list[tuple[str, Value]]:
    decision = max(incident.decisions, key=lambda each: each.at, default=None)
    worst = max((f for f in incident.findings if f.active), key=lambda f: f.severity.rank, default=None)
    decided: Value = f"{decision.answer}, by rule {decision.rule}: {decision.reason}" if decision else "no decision yet"
    done = sorted(incident.actions[:DONE_MAX], key=lambda action: action.planned_at)
    left = len(incident.actions) - len(done) + incident.actions_more
    return [
        ("problem", Cell(f"{incident.node}: {incident_title(incident)}", _severity_tone(worst))),
        (
            "incident",
            f"{incident.id}, {incident.state}, open for {_format_age(now - incident.opened_at)}{_format_acknowledgement(incident)}",
        ),
        ("why", decided),
        *(("done", _format_action(action)) for action in done),
        *([("", f"and {left} more: healthctl incidents show {incident.id}")] if left else []),
        *(
            ("now", f"{step.text}: running{_format_detail(step.detail)}")
            for step in incident.steps
            if step.state == "running"
        ),
        ("next", describe_next_step(incident, node)),
        ("outcome", incident.outcome),
        ("stop it", f"healthctl nodes hold {incident.node} 'WHY'" if is_stoppable(incident, node) else ""),
    ]


def _format_action(action: ActionView) -> Value:
    runs = action.began_at is not None and action.finished_at is None  # the outcome already says since when
    at = "" if runs else f" at {format_timestamp(action.finished_at or action.planned_at)}"
    outcome = action_outcome(action)
    text = f"{action.verb} {action.node}: {value_text(outcome)}{at}{_format_detail(action.detail)}"
    failed = isinstance(outcome, Cell) and outcome.tone in (Tone.WARN, Tone.BAD)
    return Cell(text, Tone.WARN) if failed else text


def _format_acknowledgement(incident: IncidentView) -> str:
    return f", assigned to {incident.acknowledged_by}" if incident.acknowledged_by else ", unassigned"


def _format_detail(detail: str) -> str:
    return f" ({detail})" if detail else ""


def _severity_tone(worst: Finding | None) -> Tone:
    return Tone.BAD if worst is None or worst.severity in (Severity.ERROR, Severity.FATAL) else Tone.WARN


def _format_counts(by_name: dict[str, int]) -> str:
    return ": " + ", ".join(f"{count} {name}" for name, count in sorted(by_name.items()) if count) if by_name else ""
