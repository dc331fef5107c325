"""The cluster as one person must see it at three in the morning: what is broken, what was done, why, what comes next, how to stop it.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from healthctl.duration import duration_text
from healthctl.incident_page import outcome, title
from healthctl.next_step import may_be_stopped, next_step
from healthctl.output import Block, Cell, Facts, Line, Tone, Value, moment, text_of
from remediator.model.blocking import of_mode, of_one
from remediator.model.plan import ONLY_TELLING
from remediator.model.views import ActionView, IncidentView, NodeView, StatusView
from remediator.model.views_alerts import SilenceView
from remediator.model.views_work import AwaitingView
from vocabulary.counts import counted
from vocabulary.finding import Finding, Severity
from vocabulary.identity import NODE_NAME
from vocabulary.order import TRAINER_ORDERS

TOLD_MAX, TOLD_WIDE_MAX = 3, 20  # so many incidents are told whole
LISTED_MAX, LISTED_WIDE_MAX = 6, 1000  # and so many things that block or wait; the rest is counted
DONE_MAX = 4  # and so many actions of each
_TELLING = {verb.value for verb in ONLY_TELLING}
_TO_RANKS = {kind.value for kind in TRAINER_ORDERS}
_GOOD_MODE = "act"


@dataclass(frozen=True)
class Look:
    """What one look asked for. `told` are open incidents with all that belongs to them, the worst first.

    `nodes` are theirs, by name; `by_hand` says what `by_people` found. `listed_max` of what blocks or waits is shown.
    """

    status: StatusView
    open: Sequence[IncidentView] = ()
    told: Sequence[IncidentView] = ()
    awaiting: Sequence[AwaitingView] = ()
    listed_max: int = LISTED_MAX
    nodes: Mapping[str, NodeView] = field(default_factory=dict)
    by_hand: Sequence[tuple[str, str]] = ()

    @property
    def hindered(self) -> list[str]:
        """What keeps automation from acting at all."""
        return self._blocked(own=False)

    @property
    def standing_still(self) -> list[str]:
        """What only one incident waits for."""
        return self._blocked(own=True)

    def _blocked(self, *, own: bool) -> list[str]:
        ids = {incident.id for incident in self.open}
        found = [(why, of_one(why)) for why in self.status.blocked]
        return [why for why, one in found if (one is not None and one.incident in ids) is own]


def is_well(status: StatusView) -> bool:
    """Nothing is broken, and nothing but the configuration's own mode keeps automation from acting."""
    chosen = of_mode(status.mode)
    hindered = [why for why in status.blocked if status.mode_by or not why.startswith(chosen)]
    bad = status.nodes_by_health.get("unhealthy", 0) + status.nodes_by_health.get("unknown", 0)
    return not (status.incidents_open or status.breaker or hindered or bad > status.nodes_by_state.get("retired", 0))


def by_people(nodes: Sequence[NodeView], silences: Sequence[SilenceView]) -> list[tuple[str, str]]:
    """What people hold, whom they silenced, and what is unhealthy without an incident, by name."""
    cordoned = [node.node for node in nodes if node.held_by == "operator" and node.state != "retired"]
    untold = [
        node.node for node in nodes if node.health == "unhealthy" and not node.incident and node.state != "retired"
    ]
    ends = min((moment(each.until) for each in silences), default="")
    return [
        ("cordoned", f"{_named(cordoned)}, by people; lift it: healthctl nodes uncordon NODE" if cordoned else ""),
        (
            "silenced",
            f"{_many(len(silences), 'silence')}, the first ends {ends}: healthctl alerts silences" if ends else "",
        ),
        ("no incident", f"unhealthy all the same: {_named(untold)}; see: healthctl nodes show NODE" if untold else ""),
    ]


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED_MAX} more" if len(names) > LISTED_MAX else ""
    return ", ".join(names[:LISTED_MAX]) + more


def rank(incident: IncidentView) -> tuple[bool, bool, int, float]:
    """Where an open incident stands among others: nobody's test, what many nodes share, the worst finding, the oldest."""
    worst = max((finding.severity.rank for finding in incident.findings if finding.active), default=-1)
    return incident.injected, bool(NODE_NAME.fullmatch(incident.node)), -worst, incident.opened_at


def listed_rank(incident: IncidentView) -> tuple[bool, bool, bool, bool, float]:
    """The same while only its line in the list is known: who needs a person first."""
    one = bool(NODE_NAME.fullmatch(incident.node))
    return incident.injected, one, not incident.awaits, incident.state != "waiting", incident.opened_at


def status_page(look: Look) -> Iterator[Block]:
    """One screen."""
    view = look.status
    yield Line(_headline(look))
    yield from _blocked(look)
    yield Facts([*_facts(view), *look.by_hand])
    if look.awaiting:
        yield Facts([("waits for you", _awaited(each)) for each in look.awaiting[: look.listed_max]])
    if (more := len(look.awaiting) - look.listed_max) > 0:
        yield Line(f"and {more} more wait: healthctl actions awaiting")
    for incident in look.told:
        yield Facts(_told(incident, view.at, look.nodes.get(incident.node)))
    if more := len(look.open) - len(look.told):
        yield Line(f"and {_many(more, 'more open incident')}: healthctl incidents list --state open")
    if view.mode == _GOOD_MODE:
        yield Line("stop all of it:  healthctl mode observe 'WHY'")
        yield Line("stop one node:   healthctl nodes hold NODE 'WHY'")


def _blocked(look: Look) -> Iterator[Line]:
    """What keeps automation from acting, and what lets it go on; then what waits and is not told below."""
    view, hindered = look.status, look.hindered
    if hindered:
        yield Line(Cell("automation is kept from acting:", Tone.BAD if not is_well(view) else Tone.WARN))
        yield from _listed(hindered, look.listed_max)
        if view.breaker:
            yield Line("go on: healthctl breaker reset 'WHY IT OPENED'", 2)
        if view.mode != _GOOD_MODE and view.mode_by:
            yield Line("what the configuration says: healthctl mode config", 2)
    told = {incident.id for incident in look.told}
    if waiting := [why for why in look.standing_still if why.partition(" on ")[0] not in told]:
        yield Line("do not go on by themselves:")
        yield from _listed(waiting, look.listed_max)


def _listed(words: Sequence[str], most: int) -> Iterator[Line]:
    for why in words[:most]:
        yield Line(why, 2)
    if (more := len(words) - most) > 0:
        yield Line(f"and {more} more: healthctl status -o wide", 2)


def _headline(look: Look) -> Value:
    view = look.status
    if is_well(view):
        return Cell(f"{view.cluster} is well at {moment(view.at)}", Tone.GOOD)
    bad = {name: view.nodes_by_health.get(name, 0) for name in ("unhealthy", "unknown")}
    wrong = [_many(view.incidents_open, "open incident")] * bool(view.incidents_open)
    wrong += [f"{_many(count, 'node')} {name}" for name, count in bad.items() if count]
    wrong += ["automation kept from acting"] * bool(look.hindered or view.breaker)
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
        ("under way", _many(view.actions_open, "action")),
        ("scheduler", view.scheduler if view.scheduler == "ok" else Cell(view.scheduler or "unknown", Tone.BAD)),
        ("remediator", f"{view.version}, policy {view.policy}"),
    ]


def _awaited(waiting: AwaitingView) -> Value:
    what = f"{waiting.text} on {waiting.node}, since {moment(waiting.since)}: {waiting.title}"
    return Cell(f"{what}; do it: healthctl actions approve {waiting.what}", Tone.WARN)


def _told(incident: IncidentView, now: float, node: NodeView | None) -> list[tuple[str, Value]]:
    decision = max(incident.decisions, key=lambda each: each.at, default=None)
    worst = max((f for f in incident.findings if f.active), key=lambda f: f.severity.rank, default=None)
    decided: Value = (
        f"{decision.answer}, by rule {decision.rule}: {decision.reason}" if decision else "nothing is decided yet"
    )
    age = duration_text(round(max(1.0, now - incident.opened_at)))
    done = _foremost(incident.actions)
    left = sum(action.state != "planned" for action in incident.actions) - len(done)
    return [
        ("broken", Cell(f"{incident.node}: {title(incident)}", _tone(worst))),
        ("incident", f"{incident.id}, {incident.state}, open for {age}{_cared(incident)}"),
        ("why", decided),
        *(("done", _did(action)) for action in done),
        *([("", f"and {left} more: healthctl incidents show {incident.id}")] if left else []),
        *(("now", f"{step.text}: running{_detail(step.detail)}") for step in incident.steps if step.state == "running"),
        ("next", next_step(incident, node)),
        ("outcome", incident.outcome),
        ("stop it", f"healthctl nodes hold {incident.node} 'WHY'" if may_be_stopped(incident, node) else ""),
    ]


def _foremost(actions: Sequence[ActionView]) -> list[ActionView]:
    """What is over and weighs most, in order: a plan may have hundreds of deeds. To tell people weighs least."""

    def weight(action: ActionView) -> tuple[int, float]:
        return (0 if action.verb in _TELLING else 1 if action.verb in _TO_RANKS else 2), action.planned_at

    kept = sorted((a for a in actions if a.state != "planned"), key=weight)[-DONE_MAX:]
    return sorted(kept, key=lambda action: action.planned_at)


def _did(action: ActionView) -> Value:
    at = moment(action.finished_at or action.planned_at)
    came_of_it = outcome(action)
    text = f"{action.verb} {action.node}: {text_of(came_of_it)} at {at}{_detail(action.detail)}"
    failed = isinstance(came_of_it, Cell) and came_of_it.tone in (Tone.WARN, Tone.BAD)
    return Cell(text, Tone.WARN) if failed else text


def _cared(incident: IncidentView) -> str:
    return f", {incident.acknowledged_by} looks after it" if incident.acknowledged_by else ""


def _detail(detail: str) -> str:
    return f" ({detail})" if detail else ""


def _tone(worst: Finding | None) -> Tone:
    return Tone.BAD if worst is None or worst.severity in (Severity.ERROR, Severity.FATAL) else Tone.WARN


def _many(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _counts(by_name: dict[str, int]) -> str:
    return ": " + ", ".join(f"{count} {name}" for name, count in sorted(by_name.items()) if count) if by_name else ""
