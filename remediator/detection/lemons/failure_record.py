"""A fleet's failure history as arrays, the input of `judge_lemons`. Pure.

Everything is cut at one moment first (`until`), so that no later step can see what came after it.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

DAY_S = 86400.0
OUT_DEFAULT_S = DAY_S  # if no return is recorded: the published median of a repair is 20 h
USUAL_RATE_PER_DAY = 0.004  # 2.3 to 6.5 failures per 1000 node-days in published fleets
DAYS_FINE, WEEKS_COARSE = 28, 22  # bins: daily, then weekly; older data has no weight


class Kind(enum.IntEnum):
    """What a row records. Only the first six count against a node."""

    FAILURE = 0
    XID = 1
    REMOVED = 2  # out of service for cause
    TEST_FAILED = 3
    TICKET = 4
    EXCLUDED = 5  # a user asked not to get this node
    REPAIRED = 6
    CORDONED = 7  # out of service by plan or by the controller
    RETURNED = 8
    IN_SERVICE = 9  # an interval in which it could have failed
    OTHER = 10


@dataclasses.dataclass(frozen=True)
class History:
    """Rows: equally long arrays, in any order. Ids are indices, -1 is unknown.

    Attributes:
        nodes: how many nodes the ids in `node` distinguish.
        node, kind: ids; `kind` holds `Kind`.
        time, end: UTC seconds; `end` is NaN if there is none.
        job, user, code: ids; `code` is the Xid's number.
        size: nodes of the job, NaN if unknown.
        named: False if a row is one of several made from one list of members.
        cohorts: by name ("rack"), the id of each node's group, `nodes` long.
    """

    nodes: int
    node: Ints
    time: Floats
    end: Floats
    kind: Ints
    job: Ints
    user: Ints
    code: Ints
    size: Floats
    named: Flags
    cohorts: Mapping[str, Ints]

    def take(self, rows: npt.NDArray[np.int64] | Flags) -> History:
        """Return some of the rows."""
        columns = ("node", "time", "end", "kind", "job", "user", "code", "size", "named")
        return dataclasses.replace(self, **{name: getattr(self, name)[rows] for name in columns})

    def until(self, as_of: float) -> History:
        """Return rows that began by then, each once, by node and time; what had not ended by then has no end."""
        known = self.take(np.isfinite(self.time) & (self.time <= as_of) & (self.node >= 0))
        ends = np.where((known.end <= as_of) & (known.end >= known.time), known.end, np.nan)
        known = dataclasses.replace(known, end=ends)
        columns = [known.node, known.time, known.kind, known.code, known.job, known.user]
        columns += [np.nan_to_num(column, nan=-1.0) for column in (known.end, known.size)]
        order = np.lexsort((~known.named, *columns[::-1]))
        same = np.ones(order.size, dtype=np.bool_)
        for column in columns:
            same &= np.r_[False, column[order][1:] == column[order][:-1]][: order.size]
        return known.take(order[~same])

    def of(self, *kinds: Kind) -> Flags:
        """Return which rows are of these kinds."""
        return np.isin(self.kind, kinds)


def completed_repairs(history: History) -> tuple[Ints, Floats]:
    """Return (node, time of completion) of each; where some repairs have an end, one without is still in progress."""
    rows = history.take(history.of(Kind.REPAIRED))
    if np.isfinite(rows.end).any():
        rows = rows.take(np.isfinite(rows.end))
        return rows.node, rows.end
    return rows.node, rows.time


def out_of_service(history: History, as_of: float) -> tuple[Ints, Floats, Floats]:
    """Return (node, from, to) of times in which a node could not fail; they may overlap. Rows sorted by node and time."""
    with_end = history.of(Kind.REPAIRED, Kind.FAILURE) & np.isfinite(history.end)
    out = history.of(Kind.REMOVED, Kind.CORDONED) | with_end
    if np.isfinite(history.end[history.of(Kind.REPAIRED)]).any():
        out |= history.of(Kind.REPAIRED)
    rows = history.take(out)
    back_node, back_time = _return_times(history)
    returns_told = back_node.size > 0 or bool(np.isfinite(rows.end).any())
    end = rows.end.copy()
    open_ended = np.flatnonzero(np.isnan(end))
    if open_ended.size:
        node, start = rows.node[open_ended], rows.time[open_ended]
        following = next_event_time(back_node, back_time, node, start)
        failing = history.take(history.of(Kind.FAILURE))
        again = np.isfinite(next_event_time(failing.node, failing.time, node, start + OUT_DEFAULT_S))
        unsaid = again | (not returns_told and _returns_unrecorded(again, as_of - start))
        otherwise = np.where(unsaid, start + OUT_DEFAULT_S, as_of)
        end[open_ended] = np.where(np.isfinite(following), following, otherwise)
    return rows.node, rows.time, np.minimum(end, as_of)


def _returns_unrecorded(again: Flags, since_s: Floats) -> bool:
    """Return whether a record without returns means that nodes stay out: returned nodes would have failed again."""
    expected = USUAL_RATE_PER_DAY * float(np.maximum(since_s - OUT_DEFAULT_S, 0.0).sum()) / DAY_S
    return float(again.sum()) >= expected / 2


def _return_times(history: History) -> tuple[Ints, Floats]:
    """Return what proves that a node is back: a recorded return, a repair, or work that ran on it."""
    node, done = completed_repairs(history)
    seen = history.take(history.of(Kind.RETURNED, Kind.IN_SERVICE))
    return np.concatenate([node, seen.node]), np.concatenate([done, seen.time])


def next_event_time(node: Ints, time: Floats, of_node: Ints, after: Floats) -> Floats:
    """Return the first `time` of the same node later than `after`, NaN if none."""
    if node.size == 0:
        return np.full(of_node.size, np.nan)
    order = np.lexsort((time, node))
    node, time = node[order], time[order]
    ranks, (origin, width) = np.unique(np.concatenate([time, after]), return_inverse=True)[1], (time.size, 0)
    width = int(ranks.max()) + 2
    keys, asked = node * width + ranks[:origin], of_node * width + ranks[origin:]
    at = np.searchsorted(keys, asked, side="right")
    inside = np.minimum(at, node.size - 1)
    found = (at < node.size) & (node[inside] == of_node)
    return np.where(found, time[inside], np.nan)


def bin_edges(began: float, as_of: float) -> Floats:
    """Return bin edges in UTC seconds, rising to `as_of`: days, then weeks; at least one bin."""
    days = as_of - DAY_S * np.arange(DAYS_FINE + 1)
    weeks = days[-1] - 7 * DAY_S * np.arange(1, WEEKS_COARSE + 1)
    edges = np.concatenate([days, weeks])[::-1]
    edges = edges[edges > began]
    return np.concatenate([[min(began, as_of - 1.0)] if edges.size < DAYS_FINE + WEEKS_COARSE + 1 else [], edges])


def covered_days(nodes: int, spans: tuple[Ints, Floats, Floats], edges: Floats) -> Floats:
    """Return days of each bin that a node's intervals cover, nodes × bins; overlaps count once."""
    node, start, end = spans
    found = np.zeros((nodes, edges.size - 1))
    for number in range(edges.size - 1):
        low, high = edges[number], edges[number + 1]
        inside = np.clip(np.minimum(end, high) - np.maximum(start, low), 0.0, None)
        found[:, number] = np.minimum(np.bincount(node, inside, nodes), high - low) / DAY_S
    return found
