"""How many nodes we may take out of service: in level (at once) and in rate, for the cluster and for what nodes share.

Un-isolating is never asked about here, so it can never be blocked. docs/explanation/budgets.md tells where the numbers come from.
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
NAMED_MAX = 10  # nodes told by name in a reason
PASSABLE = (
    "rate",
    "gap",
    "job",
    "rack",
    "switch",
    "partition-open",
)  # by hard faults, where the configuration names them

Number = Annotated[int, msgspec.Meta(ge=0)]
Share = Annotated[float, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class IsolationBudget(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits. Where a count and a fraction say the same thing, a small cluster has at least one.

    Raises:
        ValueError: `pass_hard_faults` names a guard that nothing may pass.
    """

    isolated_max: Number = 1  # nodes out at once
    isolated_fraction_max: Share = 0.02  # the larger of the two, for the cluster and for each partition
    isolations_per_hour_max: Number = 6  # nodes taken out within an hour
    isolated_fraction_per_hour_max: Share = 0.005  # the smaller of the two, but one
    isolation_gap_s: Seconds = 600.0  # between two isolations
    open_per_rack_max: Number = 1  # plans that run at once in a rack
    open_per_switch_max: Number = 1  # the same behind a switch
    open_per_partition_max: Number | None = None  # a partition may be the whole cluster, and a drain may take a day
    ejects_per_job_hour_max: Number = 1  # nodes taken from one job
    ejects_per_job_day_max: Number = 3  # the same, in a day
    spares_for_slowness: Number = 1  # free nodes there must be before a slow one is taken out
    slowness: tuple[Pattern, ...] = (  # findings that are only slowness
        "straggler/*",
        "throttle/*",
        "clocks/*",
        "training/throughput_low",
        "training/communication_share",
    )
    pass_hard_faults: tuple[str, ...] = ()  # guards that a fatal fault passes: it has stopped its job already
    common_cause_nodes: Annotated[int, msgspec.Meta(ge=2)] = 3  # so many that share something are one matter
    common_cause_within_s: Seconds = 600.0  # of those that come at once
    common_cause_slow_s: Seconds = 6 * HOUR_S  # of those that come one after another; 0: only what comes at once
    common_cause_usual_h: Annotated[float, msgspec.Meta(gt=0)] = 6500.0  # of one node, between two such faults
    breaker_fraction: Share = 0.05  # of the nodes, out or wanted out: nothing more is isolated
    breaker_nodes_min: Number = 3  # below so many isolated nodes a fraction says nothing
    breaker_failures: Annotated[int, msgspec.Meta(ge=1)] = 3  # of one kind of deed in a row: the same

    def __post_init__(self) -> None:
        wrong = [name for name in self.pass_hard_faults if name not in PASSABLE]
        if wrong:
            raise ValueError(f"pass_hard_faults names '{wrong[0]}'; it may name {', '.join(PASSABLE)}")


def level_only_budget(isolated_max: int) -> IsolationBudget:
    """A budget that bounds nothing but how many nodes are out at once: for rehearsals, where time is imagined."""
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
    """Most nodes we may hold at once of `nodes_total`."""
    return max(budget.isolated_max, int(nodes_total * budget.isolated_fraction_max))


def rate_max(budget: IsolationBudget, nodes_total: int) -> int:
    """Most nodes we may isolate within an hour of `nodes_total`."""
    return min(budget.isolations_per_hour_max, max(1, int(nodes_total * budget.isolated_fraction_per_hour_max)))


def isolation_guards(
    state: ClusterState, node: NodeRecord, finding: Finding | None, budget: IsolationBudget, now: float
) -> tuple[GuardAnswer, ...]:
    """May this node be isolated now because of this finding? Every guard's answer, with its figures.

    Args:
        state: everything known.
        node: the node in question, which we do not hold.
        finding: what it is for; None if that is not known any more, and then every guard counts.
        budget: the limits.
        now: UTC seconds.
    """
    hard = finding is not None and finding.severity is Severity.FATAL
    answers = []
    for guard in _all_budget_guards(state, node, finding, budget, now):
        if not guard.passed and hard and guard.name in budget.pass_hard_faults:
            text = f"{guard.text}; it does not count here: the configuration lets fatal faults pass (pass_hard_faults)"
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
    if finding is not None and _is_slowness_finding(finding, budget) and budget.spares_for_slowness:
        free = count_other_free_nodes(state, node.node)
        text = f"{free} free, {budget.spares_for_slowness} wanted before a node leaves for being slow"
        yield GuardAnswer("spare", free >= budget.spares_for_slowness, text)


def _level_guard(state: ClusterState, budget: IsolationBudget) -> GuardAnswer:
    most = level_max(budget, len(state.index.in_cluster))
    named = ", ".join(nsmallest(NAMED_MAX, state.held)) or "none"
    return GuardAnswer(
        "level",
        len(state.held) < most,
        f"{len(state.held)} of at most {format_count(most, 'node')} isolated by us ({named})",
    )


def _rate_guards(state: ClusterState, budget: IsolationBudget, now: float) -> Iterator[GuardAnswer]:
    times = state.isolated_at
    most = rate_max(budget, len(state.index.in_cluster))
    recent = len(times) - bisect_right(times, now - HOUR_S)
    yield GuardAnswer("rate", recent < most, f"{recent} of at most {format_count(most, 'isolation')} in the last hour")
    if times and budget.isolation_gap_s:
        ago = max(0.0, now - times[-1])
        text = f"the last isolation was {format_period(round(ago))} ago, at least {format_period(budget.isolation_gap_s)} lie between two"
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
            f"{held} of at most {format_count(most, 'node')} of partition {name} isolated by us",
        )
        if budget.open_per_partition_max is not None:
            yield _open_location_guard(state, "partition-open", "partition", name, budget.open_per_partition_max)


def _incident_acts(incident: Incident) -> bool:
    """Whether something is done about it; or will be in this very moment, since it is to be decided anew and comes later in line."""
    return incident.state is IncidentState.ACTING or (incident.state is IncidentState.OPEN and not incident.rule)


def _open_location_guard(state: ClusterState, guard: str, kind: str, name: str, most: int) -> GuardAnswer:
    """An action is open as long as its plan runs; a node that waits for a part or a person blocks no neighbour."""
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
    """Nodes that we isolated, or that others keep work off, and that the job was told to go on without.

    No longer than that do those count either that a leader dated whose clock was far ahead.
    """
    times, incidents = state.history.times, state.history.incidents
    isolated = times(job, ISOLATION, now - span) - times(job, ISOLATION, now + span)
    told = incidents(job, EJECT, now - span) - incidents(job, EJECT, now + span)
    return isolated + len(told - incidents(job, ISOLATION, now - span - DAY_S))


def _is_slowness_finding(finding: Finding, budget: IsolationBudget) -> bool:
    return finding.severity is not Severity.FATAL and any(fnmatchcase(finding.kind, p) for p in budget.slowness)
