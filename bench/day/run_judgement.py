"""The judge: what a day came to, from the trainers' logs, the scheduler's and what was done to the nodes. Pure.

Nothing of what the product says of itself is read, but for the owner's mark in the scheduler's own record of a drain.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence

import msgspec

from bench.day.fault_timeline import Day, Hold, Stop, Told, build_fault_story
from bench.day.faults import BY_NAME
from bench.day.node_step_breakdown import Breakdown, classify_node_steps
from bench.day.records import Happened, Look, Records, StepLine

STILL_S = 5.0  # without a step, at the end: the job stands still
MACHINES = ("gpu-healthd:", "health check")  # reasons that a program set


class Account(msgspec.Struct, frozen=True):
    """What a run came to. Node-steps are steps times the nodes of the whole job, however many made them; `pace_s` is the median of a step."""

    seconds: float
    wanted: float
    useful: int
    lost: int
    stops: list[Stop]
    holds: list[Hold]
    wrong: list[Hold]
    missed: int
    missed_nodes: int
    by_hand: int
    out: list[tuple[float, int, int]]
    progress: list[tuple[float, int]]
    told: list[Told]
    same_losses: bool
    pace_s: float
    breakdown: Breakdown

    @property
    def effective(self) -> float:
        """Useful node-steps of those that the jobs would have made without a stop, at the pace of their fastest tenth of steps."""
        return self.useful / self.wanted


def judge_run(records: Records) -> Account:
    """Judge a run."""
    begin = next(each.at for each in records.happened if each.event == "begin")
    end = next((each.at for each in reversed(records.happened) if each.event == "end"), records.looks[-1].at)
    steps = {job: [line for line in lines if line.at <= end] for job, lines in records.steps.items()}
    worlds = {job: lines[0].nodes for job, lines in steps.items()}
    before = {job: max((line.step for line in lines if line.at < begin), default=0) for job, lines in steps.items()}
    made = {job: sum(line.at >= begin for line in lines) for job, lines in steps.items()}
    kept = {job: lines[-1].step for job, lines in steps.items()}
    gaps = [gap for lines in steps.values() for gap in _gaps(lines)]
    paces = [gap for lines in steps.values() for gap in _gaps(lines, of_all_nodes=True)]
    usual_s = statistics.quantiles(paces, n=10)[0]
    stops = sorted(
        (stop for job, lines in steps.items() for stop in stops_of(job, lines, end, records.saved.get(job, 0))),
        key=lambda s: s.at,
    )
    kept |= {stop.job: records.saved.get(stop.job, 0) for stop in stops if stop.resumed_at is None}
    useful = {job: kept[job] - before[job] for job in steps}
    holds = holds_of(records.looks)
    bad = bad_starts(records)
    lost = sum((made[job] - useful[job]) * worlds[job] for job in steps)
    return Account(
        seconds=end - begin,
        wanted=sum(worlds.values()) * (end - begin) / usual_s,
        useful=sum(useful[job] * worlds[job] for job in steps),
        lost=lost,
        breakdown=classify_node_steps(steps, begin, end, usual_s, lost),
        stops=stops,
        holds=holds,
        wrong=[hold for hold in holds if hold.reason.startswith(MACHINES) and not _deserved(hold, holds, records)],
        missed=len(bad),
        missed_nodes=len({node for _, node in bad}),
        by_hand=sum(each.event == "person drains" for each in records.happened),
        out=[(look.at - begin, *_out(look)) for look in records.looks],
        progress=_progress(steps, worlds, begin),
        told=[
            build_fault_story(each, Day(begin, records, stops, holds, bad))
            for each in records.happened
            if each.event == "strike"
        ],
        pace_s=statistics.median(gaps),
        same_losses=all(_same_losses(lines) for lines in steps.values()),
    )


def stops_of(job: str, lines: Sequence[StepLine], end: float, saved: int) -> list[Stop]:
    """Where one attempt's or generation's steps end and another's begin; and the end, if the job stood still then: what is not `saved` is lost."""
    found = [
        Stop(
            job,
            last.at,
            first.at,
            last.step - first.step + 1,
            swap=last.attempt == first.attempt,
            grown=first.world - last.world,
        )
        for last, first in itertools.pairwise(lines)
        if _place(last) != _place(first)
    ]
    last = lines[-1]
    return [*found, Stop(job, last.at, None, max(0, last.step - saved))] if end - last.at > STILL_S else found


def holds_of(looks: Sequence[Look]) -> list[Hold]:
    """Stretches of looks in which a node was drained or down, with the first reason that was given."""
    found: list[Hold] = []
    since: dict[str, tuple[float, str]] = {}
    for look in looks:
        for node, (state, reason) in look.nodes.items():
            held = "drain" in state or "down" in state
            if held:
                at, first = since.get(node, (look.at, ""))
                since[node] = (at, first or reason)
            elif node in since:
                at, first = since.pop(node)
                found.append(Hold(node, at, look.at, first))
    found += [Hold(node, at, None, reason) for node, (at, reason) in since.items()]
    return sorted(found, key=lambda hold: hold.at)


def bad_starts(records: Records) -> list[tuple[float, str]]:
    """When a rank was started on a node on which none can run, and where: work that went to a node known to be bad by then."""
    found, bad = [], set()
    lasting = {each.number for each in records.happened if each.event == "strike" and BY_NAME[each.kind].stays}
    lines: list[tuple[float, int, Happened | None, str]] = [
        (each.at, 0, each, each.node) for each in records.happened if each.event in ("acts", "well")
    ]
    lines += [(rank.at, 1, None, rank.node) for rank in records.ranks if rank.event == "starts"]
    for at, _, event, node in sorted(lines, key=lambda line: line[:2]):
        if event is None:
            found += [(at, node)] if node in bad else []
        elif event.event == "well":
            bad.discard(node)
        elif event.number in lasting and event.acts in ("hang", "crash"):
            bad.add(node)
    return found


def _deserved(hold: Hold, holds: Sequence[Hold], records: Records) -> bool:
    """Whether something had befallen the node, since it last came back, for which it is right to take it out."""
    before = max(
        (each.until for each in holds if each.node == hold.node and each.until and each.until <= hold.at), default=0.0
    )
    return any(
        each.event == "strike" and each.node == hold.node and before <= each.at <= hold.at and BY_NAME[each.kind].eject
        for each in records.happened
    )


def _out(look: Look) -> tuple[int, int]:
    """How many nodes were held or down; how many of them by the system."""
    held = [(state, reason) for state, reason in look.nodes.values() if "drain" in state or "down" in state]
    return len(held), sum(reason.startswith(MACHINES[0]) for _, reason in held)


def _progress(steps: dict[str, list[StepLine]], worlds: dict[str, int], begin: float) -> list[tuple[float, int]]:
    """Node-steps that were not lost so far, whenever a job finished one, at most one point a second."""
    merged = sorted((line.at, job, line.step) for job, lines in steps.items() for line in lines)
    now = dict.fromkeys(steps, 0)
    points: list[tuple[float, int]] = []
    for at, job, step in merged:
        now[job] = step
        if at >= begin and (not points or at - begin - points[-1][0] >= 1):
            points.append((at - begin, sum(now[each] * worlds[each] for each in now)))
    return [(at, done - points[0][1]) for at, done in points]


def _gaps(lines: Sequence[StepLine], *, of_all_nodes: bool = False) -> list[float]:
    """Seconds from one step of a process group to its next; `of_all_nodes`: what they would be on all nodes of the job."""
    return [
        (after.at - one.at) * (after.world / after.nodes if of_all_nodes else 1.0)
        for one, after in itertools.pairwise(lines)
        if _place(one) == _place(after)
    ]


def _place(line: StepLine) -> tuple[int, int]:
    return line.attempt, line.generation


def _same_losses(lines: Sequence[StepLine]) -> bool:
    """A step that was trained twice came to the same loss, bit for bit."""
    known: dict[int, str] = {}
    return all(known.setdefault(line.step, line.loss) == line.loss for line in lines)
