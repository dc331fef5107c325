"""The cluster in one look: counts, the mode, and everything that keeps automation from acting, in words. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from remediator.decide.approval import awaiting
from remediator.decide.budget import NAMED_MAX, level_max
from remediator.decide.settings import Settings
from remediator.engine import Snapshot
from remediator.index import is_in_cluster
from remediator.model.blocking import OfOne, of_mode
from remediator.model.plan import Mode
from remediator.model.records import BREAKER, Answer, IncidentState
from remediator.model.views import StatusView
from remediator.roster import Roster
from remediator.standing import in_force, mode_said
from vocabulary.counts import counted
from vocabulary.health import Health


def status_view(
    cluster: str,
    version: str,
    settings: Settings,
    snapshot: Snapshot,
    roster: Roster,
    now: float,
) -> StatusView:
    """The cluster in one look; the caller adds what only it knows."""
    settings = in_force(snapshot.standing, settings)
    entries = [roster.get(node) for node in snapshot.nodes]
    health = Counter((e.health_at(now) if e else Health.UNKNOWN).value for e in entries)
    return StatusView(
        cluster=cluster,
        version=version,
        mode=settings.mode.value,
        epoch=0,
        policy=f"{settings.policy.source} {settings.policy.digest}",
        at=now,
        nodes_total=len(snapshot.nodes),
        nodes_by_state=dict(sorted(Counter(n.state.value for n in snapshot.nodes.values()).items())),
        nodes_by_health=dict(sorted(health.items())),
        isolated=sum(n.held for n in snapshot.nodes.values()),
        isolated_max=level_max(settings.budget, sum(map(is_in_cluster, snapshot.nodes.values()))),
        incidents_open=len(snapshot.incidents),
        actions_open=sum(not a.state.final for a in snapshot.actions.values()),
        scheduler="",
        blocked=blocked(settings, snapshot, roster, now),
        mode_by=_mode_by(snapshot),
        breaker=next((i.title for i in snapshot.incidents.values() if i.node == BREAKER), ""),
    )


def _second(at: float) -> str:
    """UTC, as every page and command tells it."""
    return datetime.fromtimestamp(at, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")


def _mode_by(snapshot: Snapshot) -> str:
    said = mode_said(snapshot.standing)
    return (
        f"{said.actor} since {_second(said.since)}" + (f": {said.why}" if said.why else "") if said is not None else ""
    )


def blocked(settings: Settings, snapshot: Snapshot, roster: Roster, now: float) -> tuple[str, ...]:
    """Everything that keeps automation from acting, in words; what concerns the whole cluster first."""
    words = []
    if settings.mode is not Mode.ACT:
        by = _mode_by(snapshot)
        shown = (
            "decisions are shown, not carried out" if settings.mode is not Mode.APPROVE else "people approve each plan"
        )
        words.append(f"{of_mode(settings.mode.value)}{f' (set by {by})' if by else ''}: {shown}")
    words += _of_many(snapshot, roster, now)
    for incident in sorted(snapshot.incidents.values(), key=lambda i: i.opened_at):
        if incident.node == BREAKER:
            continue
        whys = [f"waits for approval of {a.text} ({a.id})" for a in awaiting(incident)]
        if incident.answer is Answer.HOLD:
            whys.append("is held back by a guard")
        if incident.state is IncidentState.WAITING:
            whys.append(f"waits for a person: {incident.outcome}")
        words += [str(OfOne(incident.id, incident.node, why)) for why in whys]
    return tuple(words)


def _of_many(snapshot: Snapshot, roster: Roster, now: float) -> Iterator[str]:
    for incident in snapshot.incidents.values():
        if incident.node == BREAKER:
            yield f"the breaker is open since {_second(incident.opened_at)}: {incident.title}"
    off = sorted(record.node for record in snapshot.nodes.values() if record.hands_off is not None)
    if off:
        yield f"people keep us off {counted(len(off), 'node')}: {_named(off)}"
    known = [record.node for record in snapshot.nodes.values() if is_in_cluster(record)]
    silent = sorted(n for n in known if (e := roster.get(n)) is None or now - e.seen_at > e.ttl_s)
    if silent:
        are = "is" if len(silent) == 1 else "are"
        yield f"data is stale: {len(silent)} of {counted(len(known), 'node')} {are} not heard now: {_named(silent)}"


def _named(nodes: Sequence[str]) -> str:
    more = f" and {len(nodes) - NAMED_MAX} more" if len(nodes) > NAMED_MAX else ""
    return ", ".join(nodes[:NAMED_MAX]) + more
