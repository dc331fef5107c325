"""The cluster as one person must see it at three in the morning: what is broken, what was done, why, what comes next, how to stop it.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from healthctl.duration import duration_text
from healthctl.incident_page import outcome, title
from healthctl.next_step import may_be_stopped, next_step
from healthctl.output import Block, Cell, Facts, Line, Tone, Value, moment, text_of
from remediator.model.blocking import of_mode, of_one
from remediator.model.views import ActionView, IncidentView, NodeView, StatusView
from remediator.model.views_overview import HeardView, NamedNodes, OverviewView, SilencedView, ToldIncident
from remediator.model.views_work import AwaitingView
from vocabulary.counts import counted
from vocabulary.finding import Finding, Severity

TOLD_MAX, TOLD_WIDE_MAX = 3, 20  # so many incidents are told whole
LISTED_MAX, LISTED_WIDE_MAX = 6, 1000  # and so many things that block or wait; the rest is counted
DONE_MAX = 4  # and so many actions of each
_GOOD_MODE = "act"


def is_well(status: StatusView) -> bool:
    """Nothing is broken, and nothing but the configuration's own mode keeps automation from acting."""
    chosen = of_mode(status.mode)
    hindered = [why for why in status.blocked if status.mode_by or not why.startswith(chosen)]
    bad = status.nodes_by_health.get("unhealthy", 0) + status.nodes_by_health.get("unknown", 0)
    return not (status.incidents_open or status.breaker or hindered or bad > status.nodes_by_state.get("retired", 0))


def node_of(view: OverviewView, incident: IncidentView) -> NodeView | None:
    """The incident's node as it stands; None where it is about several."""
    return next((node for node in view.nodes if node.node == incident.node), None)


def status_page(view: OverviewView, listed_max: int = LISTED_MAX) -> Iterator[Block]:
    """One screen; `listed_max` of what blocks or waits is shown."""
    yield Line(_headline(view))
    yield from _blocked(view, listed_max)
    yield Facts([*_facts(view), *_by_people(view)])
    if view.awaiting:
        yield Facts([("waits for you", _awaited(each)) for each in view.awaiting[:listed_max]])
    if (more := len(view.awaiting) + view.awaiting_more - listed_max) > 0:
        yield Line(f"and {more} more wait: healthctl actions awaiting")
    for incident in view.incidents:
        yield Facts(_told(incident, view.at, node_of(view, incident)))
    if (more := view.incidents_open - len(view.incidents)) > 0:
        yield Line(f"and {counted(more, 'more open incident')}: healthctl incidents list --state open")
    if view.mode == _GOOD_MODE:
        yield Line("stop all of it:  healthctl mode observe 'WHY'")
        yield Line("stop one node:   healthctl nodes hold NODE 'WHY'")


def _blocked(view: OverviewView, listed_max: int) -> Iterator[Line]:
    """What keeps automation from acting, and what lets it go on; then what waits and is not told below."""
    if hindered := _hindered(view):
        yield Line(Cell("automation is kept from acting:", Tone.BAD if not is_well(view) else Tone.WARN))
        yield from _listed(hindered, 0, listed_max)
        if view.breaker:
            yield Line("go on: healthctl breaker reset 'WHY IT OPENED'", 2)
        if view.mode != _GOOD_MODE and view.mode_by:
            yield Line("what the configuration says: healthctl mode config", 2)
    told = {incident.id for incident in view.incidents}
    ones = [(why, of_one(why)) for why in view.blocked]
    if waiting := [why for why, one in ones if one is not None and one.incident not in told]:
        yield Line("do not go on by themselves:")
        yield from _listed(waiting, view.blocked_more, listed_max)
    if view.lacking:
        yield Line(Cell("not all of it could be asked:", Tone.WARN))
        yield from _listed(view.lacking, 0, listed_max)


def _hindered(view: OverviewView) -> list[str]:
    """What keeps automation from acting at all, and not on one incident alone."""
    return [why for why in view.blocked if of_one(why) is None]


def _listed(words: Sequence[str], more: int, most: int) -> Iterator[Line]:
    """The first of these; `more` are not even here."""
    for why in words[:most]:
        yield Line(why, 2)
    if (left := len(words) - most + more) > 0:
        yield Line(f"and {left} more: healthctl status -o wide", 2)


def _headline(view: OverviewView) -> Value:
    if is_well(view):
        return Cell(f"{view.cluster} is well at {moment(view.at)}", Tone.GOOD)
    bad = {name: view.nodes_by_health.get(name, 0) for name in ("unhealthy", "unknown")}
    wrong = [counted(view.incidents_open, "open incident")] * bool(view.incidents_open)
    wrong += [f"{counted(count, 'node')} {name}" for name, count in bad.items() if count]
    wrong += ["automation kept from acting"] * bool(_hindered(view) or view.breaker)
    return Cell(f"{view.cluster}: {', '.join(wrong)}, at {moment(view.at)}", Tone.BAD)


def _facts(view: StatusView) -> list[tuple[str, Value]]:
    mode = f"{view.mode}, {view.mode_by}" if view.mode_by else f"{view.mode}, as configured"
    out = f"{view.isolated} of at most {counted(view.isolated_max, 'node')}"
    return [
        ("mode", Cell(mode, Tone.GOOD if view.mode == _GOOD_MODE else Tone.WARN)),
        ("leader", view.leader or f"epoch {view.epoch}"),
        ("breaker", Cell(view.breaker, Tone.BAD) if view.breaker else ""),
        ("nodes", f"{view.nodes_total}{_counts(view.nodes_by_state)}"),
        ("health", _counts(view.nodes_by_health).removeprefix(": ")),
        ("isolated", Cell(out, Tone.WARN) if view.isolated >= view.isolated_max > 0 else out),
        ("under way", counted(view.actions_open, "action")),
        ("scheduler", view.scheduler if view.scheduler == "ok" else Cell(view.scheduler or "unknown", Tone.BAD)),
        ("remediator", f"{view.version}, policy {view.policy}"),
    ]


def _by_people(view: OverviewView) -> list[tuple[str, Value]]:
    """Who is heard, what people hold, whom they silenced, and what is unhealthy without an incident."""
    return [
        ("heard", _heard(view.heard, view.at)),
        ("cordoned", _named(view.cordoned, "by people; lift it: healthctl nodes uncordon NODE")),
        ("silenced", _silenced(view.silenced)),
        ("no incident", _named(view.untended, "unhealthy all the same; see: healthctl nodes show NODE")),
    ]


def _heard(heard: HeardView, now: float) -> Value:
    """How old what is told here may be."""
    if not heard.nodes:
        return ""
    oldest = "" if heard.oldest_at is None else f"; the oldest report is {_age(now - heard.oldest_at)} old"
    if heard.fresh == heard.nodes:
        return f"every node, in time{oldest}"
    never = f", {heard.never} not once since this remediator leads" if heard.never else ""
    return Cell(f"{heard.fresh} of {counted(heard.nodes, 'node')} in time{never}{oldest}", Tone.WARN)


def _named(nodes: NamedNodes, what: str) -> str:
    shown = nodes.names[:LISTED_MAX]
    more = f" and {nodes.count - len(shown)} more" if nodes.count > len(shown) else ""
    return f"{', '.join(shown)}{more}: {what}" if nodes.count else ""


def _silenced(silenced: SilencedView) -> str:
    if not silenced.count:
        return ""
    return f"{counted(silenced.count, 'silence')}, the first ends {moment(silenced.ends)}: healthctl alerts silences"


def _age(seconds: float) -> str:
    return duration_text(round(max(1.0, seconds)))


def _awaited(waiting: AwaitingView) -> Value:
    what = f"{waiting.text} on {waiting.node}, since {moment(waiting.since)}: {waiting.title}"
    return Cell(f"{what}; do it: healthctl actions approve {waiting.what}", Tone.WARN)


def _told(incident: ToldIncident, now: float, node: NodeView | None) -> list[tuple[str, Value]]:
    decision = max(incident.decisions, key=lambda each: each.at, default=None)
    worst = max((f for f in incident.findings if f.active), key=lambda f: f.severity.rank, default=None)
    decided: Value = (
        f"{decision.answer}, by rule {decision.rule}: {decision.reason}" if decision else "nothing is decided yet"
    )
    done = sorted(incident.actions[:DONE_MAX], key=lambda action: action.planned_at)
    left = len(incident.actions) - len(done) + incident.actions_more
    return [
        ("broken", Cell(f"{incident.node}: {title(incident)}", _tone(worst))),
        ("incident", f"{incident.id}, {incident.state}, open for {_age(now - incident.opened_at)}{_cared(incident)}"),
        ("why", decided),
        *(("done", _did(action)) for action in done),
        *([("", f"and {left} more: healthctl incidents show {incident.id}")] if left else []),
        *(("now", f"{step.text}: running{_detail(step.detail)}") for step in incident.steps if step.state == "running"),
        ("next", next_step(incident, node)),
        ("outcome", incident.outcome),
        ("stop it", f"healthctl nodes hold {incident.node} 'WHY'" if may_be_stopped(incident, node) else ""),
    ]


def _did(action: ActionView) -> Value:
    runs = action.began_at is not None and action.finished_at is None  # since when is told with it
    at = "" if runs else f" at {moment(action.finished_at or action.planned_at)}"
    came_of_it = outcome(action)
    text = f"{action.verb} {action.node}: {text_of(came_of_it)}{at}{_detail(action.detail)}"
    failed = isinstance(came_of_it, Cell) and came_of_it.tone in (Tone.WARN, Tone.BAD)
    return Cell(text, Tone.WARN) if failed else text


def _cared(incident: IncidentView) -> str:
    return f", {incident.acknowledged_by} looks after it" if incident.acknowledged_by else ""


def _detail(detail: str) -> str:
    return f" ({detail})" if detail else ""


def _tone(worst: Finding | None) -> Tone:
    return Tone.BAD if worst is None or worst.severity in (Severity.ERROR, Severity.FATAL) else Tone.WARN


def _counts(by_name: dict[str, int]) -> str:
    return ": " + ", ".join(f"{count} {name}" for name, count in sorted(by_name.items()) if count) if by_name else ""
