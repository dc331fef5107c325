"""What became of one fault: when its node was held, when its job trained again, what that cost. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from bench.day.faults import BY_NAME
from bench.day.records import Happened, Records

ATTRIBUTED_S = 45.0  # a stop so long after a fault may still be its doing: a stuck collective is given up after 30
REMOVED_WITHIN_S = 120.0  # even a person would have found it by then
SOON_S = 2.0
ALREADY = "already"


class Stop(msgspec.Struct, frozen=True):
    """A job stood still between two attempts, or (`swap`) while a rank was replaced.

    `resumed_at` is None if it did not train again; `lost` steps were trained twice or never again; it went on with `grown` nodes
    more, or fewer.
    """

    job: str
    at: float
    resumed_at: float | None
    lost: int
    swap: bool = False
    grown: int = 0

    @property
    def planned(self) -> bool:
        """Whether it only paused at the end of a step, to take nodes in."""
        return self.swap and self.grown > 0

    def during(self, at: float) -> bool:
        """Whether it stood still then."""
        return self.at + SOON_S < at and (self.resumed_at is None or at < self.resumed_at)


class Hold(msgspec.Struct, frozen=True):
    """A node was out of service, drained or down. `until` is None at the end of the run."""

    node: str
    at: float
    until: float | None
    reason: str


class Day(msgspec.Struct, frozen=True):
    """All that a story is told from. `bad`: when and where ranks were started on a broken node."""

    begin: float
    records: Records
    stops: Sequence[Stop]
    holds: Sequence[Hold]
    bad: Sequence[tuple[float, str]]


class Told(msgspec.Struct, frozen=True):
    """One fault's story, in seconds after it struck. `held_s`: until the node was held, and by whom; `resumed_s`: until the job trained again.

    `standing`: the job stood still already when it struck.
    """

    number: int
    at_s: float
    node: str
    kind: str
    job: str
    standing: bool
    held_s: float | None
    held_by: str
    resumed_s: float | None
    lost: int | None
    bad_starts: int
    swap: bool = False
    grown: int = 0


def build_fault_story(strike: Happened, day: Day) -> Told:
    """The story of a fault."""
    happened, node = day.records.happened, strike.node
    later = [e.at for e in happened if e.event == "strike" and e.node == node and e.at > strike.at]
    until = min(later, default=float("inf"))
    calls = BY_NAME[strike.kind].eject  # for its removal, also when another fault follows on the same node
    held_s, held_by = _held(strike, strike.at + REMOVED_WITHIN_S if calls else until, day)
    stop = _stop_of(strike, day)
    return Told(
        number=strike.number,
        at_s=strike.at - day.begin,
        node=node,
        kind=strike.kind,
        job=strike.job,
        standing=any(each.job == strike.job and each.during(strike.at) for each in day.stops),
        held_s=held_s,
        held_by=held_by,
        resumed_s=None if stop is None or stop.resumed_at is None else stop.resumed_at - strike.at,
        lost=None if stop is None else stop.lost,
        swap=stop is not None and stop.swap,
        grown=0 if stop is None else stop.grown,
        bad_starts=sum(where == node and strike.at <= at < until for at, where in day.bad),
    )


def _held(strike: Happened, until: float, day: Day) -> tuple[float | None, str]:
    """How long after it the node was held, and by whom. The scheduler's log is exact; what it does not log was seen within a second."""
    holds = [hold for hold in day.holds if hold.node == strike.node]
    if any(hold.at <= strike.at and (hold.until is None or strike.at < hold.until) for hold in holds):
        return 0.0, ALREADY
    for drain in day.records.drains:
        if drain.node == strike.node and strike.at <= drain.at < until:
            return drain.at - strike.at, drain.reason.partition(":")[0]
    down = next((hold for hold in holds if strike.at <= hold.at < until), None)
    return (None, "") if down is None else (down.at - strike.at, "Slurm")


def _stop_of(strike: Happened, day: Day) -> Stop | None:
    """The first stop of the job there, soon after it struck or had its effect, before which nothing else befell the job."""
    if BY_NAME[strike.kind].acts == "":
        return None
    happened = day.records.happened
    acts = (e.at for e in happened if e.event in ("acts", "off") and e.node == strike.node and e.at >= strike.at)
    acted = next(acts, strike.at)
    for stop in day.stops:
        if stop.planned:
            continue
        if stop.job == strike.job and strike.at - SOON_S <= stop.at <= acted + ATTRIBUTED_S:
            others = (e for e in happened if e.event == "strike" and e.job == strike.job and e.number != strike.number)
            harmful = (e for e in others if BY_NAME[e.kind].acts not in ("", "slow"))
            return None if any(strike.at < e.at <= stop.at + SOON_S for e in harmful) else stop
    return None
