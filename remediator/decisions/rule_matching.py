"""Matches a finding, with its node's present and past, against a rule. The answer is the first condition that fails."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from msgspec.structs import replace

from remediator.model.journal_records import NodeRecord
from remediator.model.rule_conditions import CoOccurrence, JobScope, Match
from remediator.state.cluster_state import ClusterState
from remediator.state.occurrence_history import CountSubject
from vocabulary.finding import Finding
from vocabulary.text.duration_format import format_period

FITS = ""


def rule_names_kind(match: Match, kind: str) -> bool:
    """Return whether the rule is about findings of this kind at all."""
    return not match.findings or any(fnmatchcase(kind, pattern) for pattern in match.findings)


def allows_finding(match: Match, finding: Finding) -> bool:
    """Return whether the rule allows a finding's severity and the kind of its component."""
    return (not match.severities or finding.severity in match.severities) and (
        not match.components or finding.component.kind in match.components
    )


def match_misfit(match: Match, finding: Finding, state: ClusterState, now: float) -> str:
    """Return why a finding of a kind that the rule names does not match; FITS (empty) if it does."""
    return (
        _finding_attribute_misfit(match, finding)
        or _node_misfit(match, state.nodes[finding.node], state, now)
        or _company_misfit(match.together, finding, state, now)
        or _past_misfit(match, finding, state, now)
    )


def finding_misfit(match: Match, finding: Finding) -> str:
    """Return the same from the finding alone, including its kind, without its node's present and past."""
    return (
        _finding_attribute_misfit(match, finding)
        if rule_names_kind(match, finding.kind)
        else f"it matches only {', '.join(match.findings)}"
    )


def _finding_attribute_misfit(match: Match, finding: Finding) -> str:
    if match.severities and finding.severity not in match.severities:
        return f"its severity is {finding.severity.value}, not {_join_with_or(s.value for s in match.severities)}"
    if match.components and finding.component.kind not in match.components:
        return f"it is about a {finding.component.kind.value}, not {_join_with_or(c.value for c in match.components)}"
    for name, values in match.evidence.items():
        said = finding.evidence.get(name)
        wanted = [str(value) for value in values]
        if said is None or str(said) not in wanted:
            return f"its {name} is {'unknown' if said is None else said}, not {_join_with_or(wanted)}"
    return FITS


def _node_misfit(match: Match, node: NodeRecord, state: ClusterState, now: float) -> str:
    if match.architectures and not set(match.architectures) & set(node.architectures):
        known = _join_with_or(a.value for a in node.architectures) or "not known"
        return f"the GPUs' architecture is {known}, not {_join_with_or(a.value for a in match.architectures)}"
    if match.node_states and node.state not in match.node_states:
        return f"the node is {node.state.value}, not {_join_with_or(s.value for s in match.node_states)}"
    if match.job is JobScope.RUNNING and not node.jobs:
        return "no job runs on the node"
    return node_work_misfit(node, match.no_job_s, state, now) if match.job is JobScope.NONE else FITS


def node_work_misfit(node: NodeRecord, no_job_s: float, state: ClusterState, now: float) -> str:
    """Return the evidence that a job runs on a node, from its own recent reports and the scheduler.

    Empty if there is none.

    A job or an agent that restarts in place shows no rank for a while.
    """
    seen = state.holds.get(node.node)
    if node.jobs:
        return f"{_join_with_or(ref.job for ref in node.jobs)} runs on the node"
    if node.left_at is not None and now - node.left_at < no_job_s:
        return f"its last rank ended less than {format_period(no_job_s)} ago"
    if seen is None or seen.schedulable is None:
        return "the scheduler does not report what runs on the node"
    return f"the scheduler reports {_join_with_or(seen.jobs)} on the node" if seen.jobs else FITS


def has_job_left(state: ClusterState, node: NodeRecord, waits: tuple[float, ...], now: float) -> bool:
    """Return whether a node's ranks have been missing for so long that a rule may treat it as a node without a job.

    Args:
        state: records it once all rules may treat it so, which makes it news once.
        node: the node.
        waits: how long rules require no rank, seconds.
        now: UTC seconds.
    """
    if node.left_at is None or not waits:
        return False
    gone_s = now - node.left_at
    if gone_s < 0:  # a former leader's clock was ahead
        state.put_node(replace(node, left_at=now))
    elif gone_s >= max(waits):
        state.put_node(replace(node, left_at=None))
    return gone_s >= min(waits)


def _company_misfit(together: CoOccurrence | None, finding: Finding, state: ClusterState, now: float) -> str:
    if together is None:
        return FITS
    company = {
        other.kind
        for other in state.findings_on(finding.node)
        if other.id != finding.id and (other.active or now - other.last_seen <= together.within_s)
    }
    missing = [pattern for pattern in together.all if not _any_kind_fits(pattern, company)]
    if missing:
        return f"{', '.join(missing)} is missing"
    if together.any and not any(_any_kind_fits(pattern, company) for pattern in together.any):
        return f"none of {', '.join(together.any)} is present"
    present = [pattern for pattern in together.none if _any_kind_fits(pattern, company)]
    return f"{', '.join(present)} is also present" if present else FITS


def _past_misfit(match: Match, finding: Finding, state: ClusterState, now: float) -> str:
    for clause in match.history:
        count = state.history.count(clause, count_subject(finding, state), now)
        if not clause.accepts(count):
            return f"{count} so far, required {clause}"
    return FITS


def count_subject(finding: Finding, state: ClusterState) -> CountSubject:
    """Return the finding as the subject of a count."""
    incident = state.incident_of(finding.node)
    return CountSubject(
        finding.kind,
        finding.node,
        finding.component.key,
        state.jobs_on(finding.node),
        incident.id if incident is not None else "",
        finding.injected,
    )


def _any_kind_fits(pattern: str, kinds: Iterable[str]) -> bool:
    return any(fnmatchcase(kind, pattern) for kind in kinds)


def _join_with_or(words: Iterable[str]) -> str:
    return " or ".join(words)
