"""The isolation budget: how many nodes may be out of service, at once and per hour, in the cluster and per location.

Returning a node to service is not limited here, so it is never blocked. docs/explanation/budgets.md explains the
numbers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from fnmatch import fnmatchcase
from heapq import nsmallest
from typing import Annotated

import msgspec

from remediator.decisions.rule_guards import GuardAnswer
from remediator.decisions.spare_nodes import count_other_free_nodes
from remediator.model.journal_records import Incident, IncidentState, NodeRecord
from remediator.model.rule_conditions import Pattern
from remediator.state.cluster_state import EJECT, ISOLATION, ClusterState
from vocabulary.finding import Finding, Severity
from vocabulary.text.duration_format import format_period
from vocabulary.text.plurals import format_count

HOUR_S, DAY_S = 3600.0, 86400.0
NAMED_MAX = 10  # nodes named in a reason
PASSABLE = (
    "rate",
    "gap",
    "job",
    "rack",
    "switch",
    "partition-open",
)  # for fatal faults, where the configuration lists them

Number = Annotated[int, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class IsolationBudget(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits. Where a count and a fraction apply, a small cluster may have at least one.

    Raises:
        ValueError: `pass_hard_faults` names a guard that nothing may pass.
    """

    isolated_max: Number = 1  # nodes out at once
    isolated_fraction_max: Share = 0.02  # the larger of the two, for the cluster and for each partition
    isolations_per_hour_max: Number = 6  # nodes isolated within an hour
    isolated_fraction_per_hour_max: Share = 0.005  # the smaller of the two, but at least one node
    isolation_gap_s: Seconds = 600.0  # between two isolations
    open_per_rack_max: Number = 1  # plans running at once in a rack
    open_per_switch_max: Number = 1  # plans running at once behind a switch
    open_per_partition_max: Number | None = None  # a partition may be the whole cluster, and a drain may take a day
    ejects_per_job_hour_max: Number = 1  # nodes ejected from one job within an hour
    ejects_per_job_day_max: Number = 3  # nodes ejected from one job within a day
    spares_for_slowness: Number = 1  # free nodes required before a slow one is isolated
    slowness: tuple[Pattern, ...] = (  # findings that are only slowness
        "straggler/*",
        "throttle/*",
        "clocks/*",
        "training/throughput_low",
        "training/communication_share",
    )
    pass_hard_faults: tuple[str, ...] = ()  # guards that a fatal fault bypasses: it has stopped its job already
    common_cause_nodes: Annotated[int, msgspec.Meta(ge=2)] = 3  # so many nodes that share something have a common cause
    common_cause_within_s: Seconds = 600.0  # for nodes that fail together
    common_cause_slow_s: Seconds = 6 * HOUR_S  # for nodes that fail one after another; 0 disables this
    common_cause_usual_h: Annotated[float, msgspec.Meta(gt=0)] = 6500.0  # of one node, between two such faults
    breaker_fraction: Share = 0.05  # of the nodes, isolated or to be isolated: opens the breaker
    breaker_nodes_min: Number = 3  # with fewer isolated nodes a fraction says nothing
    breaker_failures: Annotated[int, msgspec.Meta(ge=1)] = 3  # failed actions of one kind in a row: the same

    def __post_init__(self) -> None:
        wrong = [name for name in self.pass_hard_faults if name not in PASSABLE]
        if wrong:
            raise ValueError(f"pass_hard_faults names '{wrong[0]}'; it may name {', '.join(PASSABLE)}")


def level_only_budget(isolated_max: int) -> IsolationBudget:
    """Return a budget that limits only how many nodes are out at once: for simulations in virtual time."""
    return IsolationBudget(
        isolated_max=isolated_max,
        isolations_per_hour_max=10**9,
        isolated_fraction_per_hour_max=1e9,
        isolation_gap_s=0.0,
        open_per_rack_max=10**9,
        open_per_switch_max=10**9,
        ejects_per_job_hour_max=10**9,
        ejects_per_job_day_max=10**9,
        common_cause_nodes=10**9,
        breaker_nodes_min=10**9,
    )


def level_max(budget: IsolationBudget, nodes_total: int) -> int:
    """Return how many of `nodes_total` we may hold at once."""
    return max(budget.isolated_max, int(nodes_total * budget.isolated_fraction_max))


def rate_max(budget: IsolationBudget, nodes_total: int) -> int:
    """Return how many of `nodes_total` we may isolate within an hour."""
    return min(budget.isolations_per_hour_max, max(1, int(nodes_total * budget.isolated_fraction_per_hour_max)))


def isolation_guards(
    state: ClusterState, node: NodeRecord, finding: Finding | None, budget: IsolationBudget, now: float
) -> tuple[GuardAnswer, ...]:
    """Return every guard's answer, with figures, to whether this node may be isolated now for this finding.

    Args:
        state: the cluster's state.
        node: the node, which we do not hold.
        finding: the reason; None if it is no longer known, and then every guard counts.
        budget: the limits.
        now: UTC seconds.
    """
    hard = finding is not None and finding.severity is Severity.FATAL
    answers = []
    for guard in _all_budget_guards(state, node, finding, budget, now):
        if not guard.passed and hard and guard.name in budget.pass_hard_faults:
            text = f"{guard.text}; ignored for fatal faults by the configuration (pass_hard_faults)"
            answers.append(GuardAnswer(guard.name, passed=True, text=text))
        else:
            answers.append(guard)
    return tuple(answers)


def _all_budget_guards(
    state: ClusterState, node: NodeRecord, finding: Finding | None, budget: IsolationBudget, now: float
) -> Iterator[GuardAnswer]:
    yield _level_guard(state, budget)
    yield from _rate_guards(state, budget, now)
    yield from _shared_location_guards(state, node, budget)
    yield from _job_eject_guards(state, node, budget, now)
    if finding is not None and is_slowness_finding(finding, budget) and budget.spares_for_slowness:
        free = count_other_free_nodes(state, node.node)
        text = f"{free} free, {budget.spares_for_slowness} required to isolate a slow node"
        yield GuardAnswer("spare", free >= budget.spares_for_slowness, text)


def _level_guard(state: ClusterState, budget: IsolationBudget) -> GuardAnswer:
    most = level_max(budget, len(state.index.in_cluster))
    named = ", ".join(nsmallest(NAMED_MAX, state.held)) or "none"
    return GuardAnswer(
        "level",
        len(state.held) < most,
        f"{len(state.held)} of at most {format_count(most, 'node')} isolated ({named})",
    )


def _rate_guards(state: ClusterState, budget: IsolationBudget, now: float) -> Iterator[GuardAnswer]:
    times = state.isolated_at
    most = rate_max(budget, len(state.index.in_cluster))
    recent = len(times) - bisect_right(times, now - HOUR_S)
    yield GuardAnswer("rate", recent < most, f"{recent} of at most {format_count(most, 'isolation')} in the last hour")
    if times and budget.isolation_gap_s:
        ago = max(0.0, now - times[-1])
        text = f"the last isolation was {format_period(round(ago))} ago, at least {format_period(budget.isolation_gap_s)} required"
        yield GuardAnswer("gap", ago >= budget.isolation_gap_s, text)


def _shared_location_guards(state: ClusterState, node: NodeRecord, budget: IsolationBudget) -> Iterator[GuardAnswer]:
    for kind, most in (("rack", budget.open_per_rack_max), ("switch", budget.open_per_switch_max)):
        for name in node.places.of(kind):
            yield _open_location_guard(state, kind, kind, name, most)
    for name in node.places.partitions:
        members = state.index.members(f"partition:{name}")
        held, most = len(members & state.held), level_max(budget, len(members))
        yield GuardAnswer(
            "partition",
            held < most,
            f"{held} of at most {format_count(most, 'node')} of partition {name} isolated",
        )
        if budget.open_per_partition_max is not None:
            yield _open_location_guard(state, "partition-open", "partition", name, budget.open_per_partition_max)


def _incident_acts(incident: Incident) -> bool:
    """Return whether its plan acts, or will do so in this pass because it is due for a new decision later in the queue."""
    return incident.state is IncidentState.ACTING or (incident.state is IncidentState.OPEN and not incident.rule)


def _open_location_guard(state: ClusterState, guard: str, kind: str, name: str, most: int) -> GuardAnswer:
    """An action is open while its plan runs; a node that waits for a part or an operator blocks no neighbour."""
    held = state.index.members(f"{kind}:{name}") & state.held
    busy = [n for n in held if (i := state.incident_of(n)) is not None and _incident_acts(i)]
    named = ", ".join(nsmallest(NAMED_MAX, busy)) or "none"
    return GuardAnswer(
        guard,
        len(busy) < most,
        f"{len(busy)} of at most {format_count(most, 'action')} open in {kind} {name} ({named})",
    )


def _job_eject_guards(
    state: ClusterState, node: NodeRecord, budget: IsolationBudget, now: float
) -> Iterator[GuardAnswer]:
    for job in dict.fromkeys(ref.job for ref in node.jobs):
        hour, day = (_nodes_taken_from_job(state, job, now, span) for span in (HOUR_S, DAY_S))
        text = (
            f"{hour} of at most {format_count(budget.ejects_per_job_hour_max, 'node')} taken from job {job} in the last hour, "
            f"{day} of {budget.ejects_per_job_day_max} in a day"
        )
        yield GuardAnswer("job", hour < budget.ejects_per_job_hour_max and day < budget.ejects_per_job_day_max, text)


def _nodes_taken_from_job(state: ClusterState, job: str, now: float, span: float) -> int:
    """Return the nodes that we or others keep work off and that the job was ordered to continue without.

    Times from a former leader's clock that was far ahead count no longer than that either.
    """
    times, incidents = state.history.times, state.history.incidents
    isolated = times(job, ISOLATION, now - span) - times(job, ISOLATION, now + span)
    told = incidents(job, EJECT, now - span) - incidents(job, EJECT, now + span)
    return isolated + len(told - incidents(job, ISOLATION, now - span - DAY_S))


def is_slowness_finding(finding: Finding, budget: IsolationBudget) -> bool:
    """Return whether a finding is only about slowness: its node leaves only if spares are free."""
    return finding.severity is not Severity.FATAL and any(fnmatchcase(finding.kind, p) for p in budget.slowness)
