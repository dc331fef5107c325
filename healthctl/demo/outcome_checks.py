"""Checks of the demo's outcome. Pure: each check takes the collected facts and returns pass or fail, with numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from healthctl.demo.cluster_observer import LaunchEvent, Start, find_start_without_node
from remediator.model.scheduler_hold import HoldOwner, SchedulerNodeState
from remediator.model.views import EventView, IncidentView, NodeView
from vocabulary.text.plurals import format_count

ACTED = "succeeded"


class LossRow(msgspec.Struct, frozen=True):
    """One step as recorded by rank 0; `loss` is exact, in hexadecimal."""

    step: int
    loss: str
    attempt: int


class DemoFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The input of all checks.

    `graceful_node` and `abort_node` are the two that failed, `..._kind` the deciding findings, `needs_reset` whether the
    first one must be reset. `killed_in_graceful`: a rank was killed during the graceful exit, so steps may be lost.
    """

    graceful_node: str
    abort_node: str
    graceful_kind: str
    abort_kind: str
    needs_reset: bool
    steps: int
    every: int
    losses: tuple[LossRow, ...] = ()
    reference: Mapping[int, str] = {}
    launches: tuple[LaunchEvent, ...] = ()
    nodes: Mapping[str, NodeView] = {}
    holds: Mapping[str, SchedulerNodeState] = {}
    incidents: tuple[IncidentView, ...] = ()
    events: tuple[EventView, ...] = ()
    job_exit: int | None = None
    killed_in_graceful: bool = False
    trouble: str = ""

    def incident_of(self, node: str) -> IncidentView | None:
        """The incident that took `node` out; another one may have notified people because of it, as for a hanging rank."""
        return next((i for i in self.incidents if i.node == node and any(a.verb == "cordon" for a in i.actions)), None)

    def steps_lost(self, node: str) -> int | None:
        """Finished steps that were trained twice because `node` had to leave; None if no attempt ended for it."""
        last = find_start_without_node(self.launches, node)
        if last is None:
            return None
        swapped = next((event for event in self.launches if event.event == "swapped" and event.start > last), None)
        if swapped is not None and swapped.attempt == last[0]:
            return swapped.lost
        before = [row.step for row in self.losses if row.attempt <= last[0]]
        after = [row.step for row in self.losses if row.attempt > last[0]]
        return max(before) + 1 - after[0] if before and after else None


class DemoCheck(msgspec.Struct, frozen=True):
    """The result of one check."""

    name: str
    ok: bool
    detail: str


def check_scenario_complete(facts: DemoFacts) -> DemoCheck:
    """The scenario ran to its end."""
    return DemoCheck("scenario complete", not facts.trouble, facts.trouble or "every phase was reached")


def check_job_exit(facts: DemoFacts) -> DemoCheck:
    """The job exited with 0."""
    return DemoCheck("job finished", facts.job_exit == 0, f"exit code {facts.job_exit}")


def check_losses_equal(facts: DemoFacts) -> DemoCheck:
    """The loss of every step, also of steps trained twice, equals that of an uninterrupted run bit for bit."""
    name = "loss bit for bit"
    missing = sorted(set(range(facts.steps)) - {row.step for row in facts.losses})
    if missing:
        return DemoCheck(
            name, ok=False, detail=f"{format_count(len(missing), 'step')} without a loss, the first is {missing[0]}"
        )
    if set(facts.reference) != set(range(facts.steps)):
        return DemoCheck(
            name, ok=False, detail=f"the uninterrupted run has {len(facts.reference)} of {facts.steps} steps"
        )
    wrong = [row for row in facts.losses if facts.reference[row.step] != row.loss]
    if wrong:
        first = wrong[0]
        detail = f"{len(wrong)} differ; step {first.step}: {first.loss}, uninterrupted {facts.reference[first.step]}"
        return DemoCheck(name, ok=False, detail=detail)
    last = float.fromhex(facts.reference[facts.steps - 1])
    return DemoCheck(
        name, ok=True, detail=f"all {facts.steps} steps equal those of an uninterrupted run (last: {last:.4f})"
    )


def check_graceful_exit_lost_nothing(facts: DemoFacts) -> DemoCheck:
    """The job resumed at the step at which it had agreed to save."""
    lost, allowed = facts.steps_lost(facts.graceful_node), facts.every if facts.killed_in_graceful else 0
    ok = lost is not None and lost <= allowed
    return DemoCheck("graceful exit", ok, f"{lost} steps lost (at most {allowed} allowed)")


def check_abort_lost_little(facts: DemoFacts) -> DemoCheck:
    """The job resumed from the last periodic checkpoint, or the previous one if that was still being written."""
    lost = facts.steps_lost(facts.abort_node)
    ok = lost is not None and 0 <= lost < 2 * facts.every
    return DemoCheck("exit by abort", ok, f"{lost} steps lost (a checkpoint every {facts.every} steps)")


def check_condemned_nodes_left(facts: DemoFacts) -> DemoCheck:
    """Both nodes left the job, and the one that waits for replacement did not return."""
    starts = [event for event in facts.launches if event.event == "attempt_started"]
    gone = {node: find_start_without_node(facts.launches, node) for node in (facts.graceful_node, facts.abort_node)}
    last = gone[facts.abort_node]
    back = [start for start in starts if last is not None and start.start > last and facts.abort_node in start.nodes]
    return DemoCheck(
        "isolated nodes left the job",
        None not in gone.values() and not back,
        f"{format_count(len(starts), 'attempt')}: {' → '.join(','.join(start.nodes) for start in starts)}",
    )


def check_first_node_returned(facts: DemoFacts) -> DemoCheck:
    """The first node was drained, reset, tested and undrained by the controller, and is on probation."""
    incident, node, hold = (
        facts.incident_of(facts.graceful_node),
        facts.nodes.get(facts.graceful_node),
        facts.holds.get(facts.graceful_node),
    )
    done = [a.verb for a in incident.actions if a.node == facts.graceful_node and a.state == ACTED] if incident else []
    wanted = ["cordon", *(["reset_gpu"] if facts.needs_reset else []), "run_preflight", "resume"]
    missing = [verb for verb in wanted if verb not in done]
    state = node.state if node else "unknown"
    free = hold is not None and hold.schedulable is True
    ok = not missing and state == "probation" and free
    detail = f"{state}, scheduler may use it: {free}, done: {', '.join(v for v in wanted if v in done) or 'nothing'}"
    return DemoCheck(f"{facts.graceful_node} passed its test and is back on probation", ok, detail)


def check_second_node_quarantined(facts: DemoFacts) -> DemoCheck:
    """The second node is still drained by the controller, with its reason, and waits for an operator."""
    incident, node, hold = (
        facts.incident_of(facts.abort_node),
        facts.nodes.get(facts.abort_node),
        facts.holds.get(facts.abort_node),
    )
    ours = hold is not None and hold.schedulable is False and hold.owner is HoldOwner.US
    ok = (
        ours and node is not None and node.state == "replacing" and incident is not None and incident.state == "waiting"
    )
    reason = hold.reason if hold else "unknown to the scheduler"
    return DemoCheck(
        f"{facts.abort_node} stays out for replacement", ok, f"{node.state if node else 'unknown'}; {reason}"
    )


def check_other_nodes_untouched(facts: DemoFacts) -> DemoCheck:
    """No healthy node was isolated."""
    others = [node for node in facts.nodes if node not in (facts.graceful_node, facts.abort_node)]
    touched = [n for n in others if facts.nodes[n].state != "healthy" or facts.holds[n].schedulable is not True]
    return DemoCheck("healthy nodes untouched", bool(others) and not touched, ", ".join(touched) or ", ".join(others))


def check_no_duplicate_actions(facts: DemoFacts) -> DemoCheck:
    """Each node was drained once, and every action has a decision: to act, or to wait for approval and notify people."""
    name = "no action repeated, none without a decision"
    for incident in facts.incidents:
        for action in incident.actions:
            known = {d.id for d in incident.decisions if d.answer == "act" or action.verb == "alert"}
            if not any(action.id.startswith(f"{decision}.") for decision in known):
                return DemoCheck(name, ok=False, detail=f"{action.id} has no decision")
    ended = [str(event.data.get("action")) for event in facts.events if event.kind == "action_ended"]
    twice = sorted({action for action in ended if ended.count(action) > 1})
    drained = [a.node for i in facts.incidents for a in i.actions if a.verb == "cordon" and a.state == ACTED]
    twice += sorted({f"cordon of {node}" for node in drained if drained.count(node) > 1})
    return DemoCheck(
        name, not twice and bool(ended), ", ".join(twice) or f"{format_count(len(ended), 'action')}, each once"
    )


def check_injected_marks(facts: DemoFacts) -> DemoCheck:
    """The injected kernel lines are marked as injected; later readings from the driver are ordinary readings."""
    marked = {i.node for i in facts.incidents if i.actions and any(f.injected for f in i.findings)}
    missing = sorted({facts.graceful_node, facts.abort_node} - marked)
    return DemoCheck(
        "injected faults marked as such", not missing, ", ".join(missing) or "in both incidents that acted"
    )


CHECKS: tuple[Callable[[DemoFacts], DemoCheck], ...] = (
    check_scenario_complete,
    check_job_exit,
    check_losses_equal,
    check_graceful_exit_lost_nothing,
    check_abort_lost_little,
    check_condemned_nodes_left,
    check_first_node_returned,
    check_second_node_quarantined,
    check_other_nodes_untouched,
    check_no_duplicate_actions,
    check_injected_marks,
)


def run_checks(facts: DemoFacts) -> list[DemoCheck]:
    """Run all checks, in order."""
    return [check(facts) for check in CHECKS]


def measure_latencies_ms(facts: DemoFacts, first_step_at: Mapping[Start, float]) -> dict[str, float]:
    """The duration of each link, in milliseconds; links without both ends observed are omitted."""
    found: dict[str, float] = {}
    ways = (
        ("graceful", facts.graceful_node, facts.graceful_kind),
        ("abort", facts.abort_node, facts.abort_kind),
    )
    for way, node, kind in ways:
        incident = facts.incident_of(node)
        cause = next((f for f in incident.findings if f.kind == kind), None) if incident else None
        if incident is None or cause is None:
            continue
        orders = [a.data for a in incident.actions if "mailbox_at" in a.data]
        drained = [a.finished_at for a in incident.actions if a.verb == "cordon" and a.finished_at]
        ends: dict[str, list[float]] = {
            "decision": [incident.decisions[0].at] if incident.decisions else [],
            "order in every mailbox": collect_order_times(orders, "mailbox_at"),
            "step agreed": collect_order_times(orders, "agreed_at"),
            "checkpoint complete": collect_order_times(orders, "saved_at"),
            "ranks left": collect_order_times(orders, "left_at"),
            "node drained": drained,
        }
        for name, at in ends.items():
            if at:
                found[f"{way}: fault → {name}"] = round((max(at) - cause.first_seen) * 1000, 1)
        last = find_start_without_node(facts.launches, node)
        again = [at for start, at in first_step_at.items() if last is not None and start > last]
        if again:
            found[f"{way}: fault → training again"] = round((min(again) - cause.first_seen) * 1000, 1)
    return found


def collect_order_times(orders: Sequence[Mapping[str, object]], name: str) -> list[float]:
    """One timestamp from every order that has it."""
    return [at for order in orders if isinstance(at := order.get(name), float)]


def read_losses(path: Path) -> tuple[LossRow, ...]:
    """Read the losses as written; a truncated line is skipped."""
    rows = []
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            document = json.loads(line)
            rows.append(LossRow(int(document["step"]), str(document["loss"]), int(document["attempt"])))
        except (ValueError, KeyError, TypeError):
            continue
    return tuple(rows)
