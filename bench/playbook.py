"""Decisions per second with the shipped policy, and a million findings replayed.

    python bench/playbook.py [FINDINGS]

Three mixes, each in one process on one core, no database: what the policy itself costs (`first`), what an incident's whole
decision costs (report in, plan out), and a long record in which most findings are what real logs hold: a program's own
errors and things to watch. Medians over slices of one run.
"""

from __future__ import annotations

import itertools
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from remediator.decisions.decision_settings import DecisionSettings
from remediator.decisions.isolation_budget import level_only_budget
from remediator.model.journal_records import JobRef
from remediator.model.pipeline_inputs import AnyInput, FindingsReported, HoldsObserved, PlacementChanged, Tick
from remediator.model.plan_steps import Mode
from remediator.model.rule_conditions import NodeState
from remediator.model.scheduler_hold import HoldOwner, SchedulerNodeState
from remediator.pipeline import apply_input
from remediator.playbook.playbook_loader import SHIPPED, load_policy
from remediator.replay.simulated_cluster import AnswerScript, SimulatedCluster
from remediator.state.cluster_state import ClusterState
from vocabulary.fault_catalogue.catalogue_file import load_catalogue
from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.identity import Component, ComponentKind

NODES = 1000
SLICES = 10
GPUS = [Component(ComponentKind.GPU, f"GPU-{i}", f"0000:{i:02x}:00.0", i) for i in range(8)]
CATALOGUE = load_catalogue()
# What a month of kernel logs holds, by frequency: programs' errors, warnings that come and go, and the rare grave fault.
MIX = [
    ("xid/31", 4000),
    ("xid/13", 3000),
    ("xid/43", 1500),
    ("xid/45", 1000),
    ("xid/63", 480),
    ("xid/94", 10),
    ("xid/62", 10),
]


def build_finding(number: int, kind: str, node: str, at: float) -> Finding:
    check, _, code = kind.partition("/")
    component = GPUS[number % 8]
    severity = CATALOGUE.entry(int(code)).severity
    return Finding(
        id=finding_id(node, check, code, component, str(number)),
        node=node,
        check=check,
        code=code,
        component=component,
        severity=severity,
        summary=kind,
        first_seen=at,
        last_seen=at,
        origin=str(number),
        active=severity is not Severity.INFO,
    )


def per_second(slices: list[Callable[[], int]]) -> tuple[float, float, float]:
    rates = []
    for work in slices:
        begun = time.perf_counter()
        done = work()
        rates.append(done / (time.perf_counter() - begun))
    return statistics.median(rates), min(rates), max(rates)


def build_settings(isolated_max: int = 1, per_hour_max: int = 10**9) -> DecisionSettings:
    budget = replace(level_only_budget(isolated_max), isolations_per_hour_max=per_hour_max)
    return DecisionSettings(policy=load_policy([SHIPPED]), mode=Mode.ACT, budget=budget, probation_s=3600.0)


def known_nodes(state: ClusterState, rules: DecisionSettings, at: float) -> None:
    for n in range(NODES):
        apply_input(state, FindingsReported(at=at, node=f"n{n}", boot_id="b", active=()), rules)
        apply_input(state, PlacementChanged(at=at, node=f"n{n}", jobs=(JobRef(f"job{n // 16}", 0),)), rules)
    state.take_changes()


def measure_rule_answers() -> tuple[float, float, float]:
    """Which rule answers one finding: every code of the catalogue in turn."""
    rules, state = build_settings(), ClusterState()
    known_nodes(state, rules, 0.0)
    findings = [build_finding(i, f"xid/{code}", f"n{i % NODES}", 0.0) for i, code in enumerate(CATALOGUE.xids)]
    again = itertools.cycle(findings)

    def slice_() -> int:
        for _ in range(20_000):
            rules.policy.first(next(again), state, 1.0)
        return 20_000

    return per_second([slice_] * SLICES)


def measure_decisions() -> tuple[float, float, float]:
    """A grave finding on a node without one: incident, decision with its reasons, plan with its first actions."""
    rules = build_settings(isolated_max=10**9)
    numbers = itertools.count()
    fresh = [ClusterState() for _ in range(SLICES)]
    for state in fresh:
        known_nodes(state, rules, 0.0)

    def slice_() -> int:
        state = fresh.pop()
        for n in range(NODES):
            found = build_finding(next(numbers), "xid/79", f"n{n}", 1.0)
            apply_input(state, FindingsReported(at=1.0, node=f"n{n}", boot_id="b", changes=(found,)), rules)
        assert len(state.take_changes().decisions) == NODES
        return NODES

    return per_second([slice_] * SLICES)


def generate_record(count: int) -> Iterator[AnyInput]:
    """`count` findings over a month on 1000 nodes, a tick every thousand."""
    rng = random.Random(7)  # noqa: S311 - the same record every time
    kinds = rng.choices([kind for kind, _ in MIX], [share for _, share in MIX], k=count)
    for number, kind in enumerate(kinds):
        at = 10.0 + number * (30 * 86400.0 / count)
        node = f"n{rng.randrange(NODES)}"
        yield FindingsReported(at=at, node=node, boot_id="b", changes=(build_finding(number, kind, node, at),))
        if number % 1000 == 0:
            yield Tick(at=at)


def parts_arrive(rehearsal: SimulatedCluster) -> None:
    """Once a day people replace what waits for it, and give the nodes back."""
    for node in rehearsal.state.nodes_in(NodeState.REPLACING):
        rehearsal.submit(FindingsReported(at=rehearsal.now, node=node.node, boot_id="b", active=()))
        hold = SchedulerNodeState(node.node, schedulable=True, owner=HoldOwner.NOBODY)
        rehearsal.submit(HoldsObserved(at=rehearsal.now + 1.0, holds=(hold,)))


def measure_replay(count: int) -> tuple[tuple[float, float, float], SimulatedCluster]:
    """The record under the shipped policy, with a cluster that answers what is planned."""
    rehearsal = SimulatedCluster(build_settings(isolated_max=50, per_hour_max=100), AnswerScript())
    known_nodes(rehearsal.state, rehearsal.settings, 0.0)
    inputs = generate_record(count)
    share = max(1, count // SLICES)

    day = 0

    def slice_() -> int:
        nonlocal day
        done = 0
        for item in inputs:
            if item.at // 86400 > day:
                day = int(item.at // 86400)
                parts_arrive(rehearsal)
            rehearsal.run(item.at)
            rehearsal.submit(item)
            done += isinstance(item, FindingsReported)
            if done == share:
                break
        return done

    return per_second([slice_] * SLICES), rehearsal


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    policy = load_policy([SHIPPED])
    print(
        f"policy {policy.digest}, {len(policy.rules)} rules; history kept for 30 days; per second: median (least-most)"
    )
    print("which rule answers a finding   {:>9,.0f} ({:,.0f}-{:,.0f})".format(*measure_rule_answers()))
    print("grave finding to planned steps {:>9,.0f} ({:,.0f}-{:,.0f})".format(*measure_decisions()))
    begun = time.perf_counter()
    rates, rehearsal = measure_replay(count)
    taken = time.perf_counter() - begun
    print("replayed findings              {:>9,.0f} ({:,.0f}-{:,.0f})".format(*rates))
    print(
        f"{count:,} findings in {taken:.1f} s: {len(rehearsal.decisions):,} decisions, {len(rehearsal.incidents):,} incidents"
    )


if __name__ == "__main__":
    main()
