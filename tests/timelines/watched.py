"""A timeline that is audited as it goes, by figures of its own: what may never happen, whatever the inputs are."""

from __future__ import annotations

from typing import Any

from remediator.decide.budget import level_max, rate_max
from remediator.model.inputs import AnyInput, BreakerReset, TopologyObserved
from remediator.model.places import Places
from remediator.model.records import ActionState, IncidentState
from remediator.model.rules import NodeState
from remediator.state import BREAKER, ISOLATION
from tests.timelines.story import Story

CHANGING = {"cordon", "resume", "reset_gpu", "reboot", "run_preflight"}
OUT = {NodeState.DRAINING, NodeState.QUARANTINED, NodeState.RESETTING, NodeState.TESTING, NodeState.REPLACING}


class Watched(Story):
    """A cluster of two racks, two nodes to a switch, every other one in a partition."""

    def __init__(self, rules: Any, nodes: int) -> None:
        self.isolated: list[tuple[float, str, tuple[str, ...]]] = []
        super().__init__(rules, nodes)
        half = nodes // 2
        places = {
            f"n{n}": Places(rack=f"r{n // half}", switch=f"s{n // 2}", partitions=("p",) * (n % 2))
            for n in range(1, nodes + 1)
        }
        self.tell(TopologyObserved(at=self.now, source="file", places=places))

    def _tell(self, item: AnyInput) -> None:
        breaker_was_open = self.state.incident_of(BREAKER) is not None and not isinstance(item, BreakerReset)
        busy_before = self._busy()
        states = {name: node.state for name, node in self.state.nodes.items()}
        planned, seen = set(self.actions), len(self.occurrences)
        super()._tell(item)
        for each in [o for o in self.occurrences[seen:] if o.kind == ISOLATION]:
            assert not breaker_was_open, "isolated while the breaker was open"
            self._check_rate(each.at, each.node, each.jobs, busy_before & self._busy())
            self.isolated.append((each.at, each.node, each.jobs))
        self._check_hands(states, set(self.actions) - planned)
        self._check_ways_back(states)

    def _busy(self) -> set[str]:
        acting = {i.node for i in self.state.incidents.values() if i.state is IncidentState.ACTING}
        return acting & {name for name, node in self.state.nodes.items() if node.held}

    def _check_rate(self, at: float, node: str, jobs: tuple[str, ...], busy: set[str]) -> None:
        budget, nodes = self.rules.budget, self.state.nodes
        times = [t for t, _, _ in self.isolated]
        assert not times or at - times[-1] >= budget.isolation_gap_s, "too soon after the last"
        assert sum(at - t < 3600 for t in times) < rate_max(budget, len(nodes)), "too many in an hour"
        assert sum(n.held for n in nodes.values()) <= level_max(budget, len(nodes)), "too many at once"
        for job in jobs:
            from_job = [t for t, _, lost in self.isolated if job in lost]
            assert sum(at - t < 3600 for t in from_job) < budget.ejects_per_job_hour_max
            assert sum(at - t < 86_400 for t in from_job) < budget.ejects_per_job_day_max
        here = nodes[node].places
        near = [n for n in busy - {node} if {nodes[n].places.rack, nodes[n].places.switch} & {here.rack, here.switch}]
        assert not near, f"an action was open at {near}"
        for wide in self.state.wide():
            assert node not in wide.members or wide.opened_at >= at, "isolated although it shares a cause"

    def _check_hands(self, before: dict[str, NodeState], new: set[str]) -> None:
        for action in (self.actions[a] for a in new):
            theirs = before.get(action.node) is NodeState.OPERATOR_HELD
            still = self.state.nodes.get(action.node)
            if theirs and still is not None and still.state is NodeState.OPERATOR_HELD:
                assert action.verb not in CHANGING, f"{action.verb} of a node that an operator holds"

    def _check_ways_back(self, before: dict[str, NodeState]) -> None:
        for name, node in self.state.nodes.items():
            if node.state is not NodeState.PROBATION or before.get(name) not in OUT or "operator" in node.cause:
                continue
            incident = node.cause.partition(":")[0]
            passed = [
                a.finished_at
                for a in self.actions.values()
                if a.incident == incident and a.verb == "run_preflight" and a.state is ActionState.SUCCEEDED
            ]
            repaired = [
                a.finished_at or 0.0
                for a in self.actions.values()
                if a.incident == incident and a.verb in {"reset_gpu", "reboot"}
            ]
            assert passed, f"{name} came back without a passed preflight"
            assert max(t or 0.0 for t in passed) >= max(repaired, default=0.0)
