"""What one fault of a burst costs the decisions: a tick after each batch that reviews every incident, and a tick by the clock.

Then what a node costs that begins another job while those incidents are open: all are reviewed, or what depends on it.

    python -m bench.fault_bursts [--repeats N]

A cluster of 2000 nodes under the shipped policy and budget; the faults arrive at once, each on a node of its own. No
database and no queue: processor time of `apply_input` alone, one process, the two ways in turn.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator

import msgspec

from bench.playbook import build_finding
from remediator.decisions.decision_settings import DecisionSettings
from remediator.decisions.isolation_budget import IsolationBudget
from remediator.engine.decision_engine import TICK_S
from remediator.model.journal_records import JobRef
from remediator.model.pipeline_inputs import AnyInput, FindingsReported, HoldsObserved, PlacementChanged, Tick
from remediator.model.plan_steps import Mode
from remediator.model.scheduler_hold import HoldOwner, SchedulerNodeState
from remediator.pipeline import apply_input
from remediator.playbook.playbook_loader import SHIPPED, load_policy
from remediator.state.cluster_state import ClusterState

NODES, JOB_NODES = 2000, 64
BURSTS, BATCHES = (300, 1000), (256, 16, 1)
PLACEMENTS = 256
EPOCH_S = 1_700_000_000.0
KINDS = ("xid/79", "xid/48", "xid/31", "xid/79")  # a lost GPU mostly, lost data, a program's error


class Cost(msgspec.Struct, frozen=True):
    """Microseconds a fault, and reviews of an incident in all."""

    micros: float
    reviews: int
    decisions: int


def running_cluster(rules: DecisionSettings) -> ClusterState:
    """Every node reports, is in service and trains one of the jobs."""
    state = ClusterState()
    for number in range(NODES):
        node, job = f"n{number}", JobRef(f"job-{number // JOB_NODES}", 0)
        apply_input(state, FindingsReported(at=EPOCH_S, node=node, boot_id="b", active=()), rules)
        apply_input(state, PlacementChanged(at=EPOCH_S, node=node, jobs=(job,)), rules)
    holds = tuple(SchedulerNodeState(f"n{n}", schedulable=True, owner=HoldOwner.NOBODY) for n in range(NODES))
    apply_input(state, HoldsObserved(at=EPOCH_S, holds=holds), rules)
    apply_input(state, Tick(at=EPOCH_S), rules)
    state.take_changes()
    return state


def faults(count: int, at: float) -> Iterator[AnyInput]:
    """So many nodes break at once, in no order of racks or jobs."""
    for number in range(count):
        node = f"n{number * 7 % NODES}"
        found = build_finding(number, KINDS[number % len(KINDS)], node, at)
        yield FindingsReported(at=at, node=node, boot_id="b", changes=(found,))


def measure(burst: int, size: int, rules: DecisionSettings, *, by_clock: bool) -> Cost:
    """Decide on one burst in batches of `size`. `by_clock`: as the engine does; else a full tick after each batch."""
    state, reviews, decisions = running_cluster(rules), 0, 0
    items = list(faults(burst, EPOCH_S + 100.0))
    begun, next_tick = time.process_time(), 0.0
    for first in range(0, len(items), size):
        passed = time.process_time() - begun
        for item in items[first : first + size]:
            apply_input(state, msgspec.structs.replace(item, at=item.at + passed), rules)
        reviews += len(items[first : first + size])
        if not by_clock or passed >= next_tick or first + size >= len(items):
            next_tick = passed + TICK_S
            if not by_clock:
                state.reviews.wake_all()
            now = EPOCH_S + 100.0 + passed
            reviews += sum(not state.reviews.is_resting(i, now) for i in state.incidents)
            apply_input(state, Tick(at=now), rules)
        decisions += len(state.take_changes().decisions)
    return Cost((time.process_time() - begun) / burst * 1e6, reviews, decisions)


def measure_placements(burst: int, rules: DecisionSettings, *, all_reviewed: bool) -> Cost:
    """Let nodes begin another job while the incidents of a burst are open."""
    state = running_cluster(rules)
    for item in faults(burst, EPOCH_S + 100.0):
        apply_input(state, item, rules)
    now = EPOCH_S + 101.0
    apply_input(state, Tick(at=now), rules)
    state.take_changes()
    moved = [f"n{number}" for number in range(NODES) if state.incident_of(f"n{number}") is None][:PLACEMENTS]
    begun = time.process_time()
    for node in moved:
        if all_reviewed:
            state.reviews.wake_all()
        apply_input(state, PlacementChanged(at=now, node=node, jobs=(JobRef("next", 0),)), rules)
    spent = time.process_time() - begun
    return Cost(spent / len(moved) * 1e6, len(state.incidents), len(state.take_changes().decisions))


def print_placements(rules: DecisionSettings, repeats: int) -> None:
    """Print the second table."""
    print("\n| open incidents | all are reviewed, µs a placement | what depends on it, µs a placement | ratio |")
    print("|---|---|---|---|")
    for burst in BURSTS:
        pairs = [[measure_placements(burst, rules, all_reviewed=how) for how in (True, False)] for _ in range(repeats)]
        before, after = (statistics.median(pair[i].micros for pair in pairs) for i in (0, 1))
        print(f"| {pairs[0][0].reviews} | {before:,.0f} | {after:,.0f} | {before / after:.1f} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3, help="of each row, both ways in turn (default 3)")
    repeats: int = parser.parse_args().repeats
    rules = DecisionSettings(policy=load_policy([SHIPPED]), mode=Mode.ACT, budget=IsolationBudget())
    print(
        "| faults | in batches of | a full tick each batch, µs a fault | by the clock, µs a fault | ratio | reviews |"
    )
    print("|---|---|---|---|---|---|")
    for burst in BURSTS:
        for size in BATCHES:
            pairs = [[measure(burst, size, rules, by_clock=clock) for clock in (False, True)] for _ in range(repeats)]
            before, after = (statistics.median(pair[i].micros for pair in pairs) for i in (0, 1))
            ratio = statistics.median(pair[0].micros / pair[1].micros for pair in pairs)
            seen = " → ".join(f"{cost.reviews:,}" for cost in pairs[0])
            print(f"| {burst} | {size} | {before:,.0f} | {after:,.0f} | {ratio:.1f} | {seen} |", flush=True)
    print_placements(rules, repeats)


if __name__ == "__main__":
    main()
