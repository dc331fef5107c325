"""A fault soon after a return usually continues the episode before it: the repair did not help. Pure.

Of the nodes that return to service in a modern fleet, 22 % fail again within a day and 42 % within 28 days, and the
failures of the last half year predict nothing. At 6.5 failures in 1000 node-days, 17 % would fail in 28 days anyway;
the others, 30 % of all returns, decay with a time constant of 0.76 days, so 98 % of them come within three days.
"""

from __future__ import annotations

import numpy as np

from remediator.detection.lemons.failure_record import (
    DAY_S,
    Floats,
    History,
    Ints,
    Kind,
    completed_repairs,
    next_event_time,
)
from remediator.detection.lemons.incident_attribution import AttributedIncidents

UNHELPFUL_SHARE = 0.30  # of repairs: 1 - (1 - 0.42) / (1 - 0.17)
RELAPSE_D = 0.76  # time constant: 1 - exp(-1 d / RELAPSE_D) = 0.22 / 0.30
EPISODE_D = 3.0  # later faults start an episode of their own
PUBLISHED_WEIGHT = 10.0  # nodes of this fleet that outweigh the published share
UNHELPFUL_MAX = 0.6
STUBBORN = (
    2.0  # times the share, after a repair that did not help: a long episode is little more evidence than a short one
)
SUBSTANTIAL = 0.5  # weight in failures: only such an incident is followed by a repair of this node


def days_since_return(known: History, found: AttributedIncidents) -> Floats:
    """Return, per incident, the days in service since the node's fault before it, infinite for a node's first.

    Without a recorded return in between they count from the last row of that fault.
    """
    since = np.full(found.node.size, np.inf)
    faults = np.flatnonzero(found.weight >= SUBSTANTIAL)
    order = np.searchsorted(faults, np.arange(found.node.size)) - 1
    follows = np.flatnonzero(order >= 0)
    before = faults[order[follows]]
    same = found.node[before] == found.node[follows]
    follows, before = follows[same], before[same]
    if follows.size == 0:
        return since
    last = np.full(found.node.size, -np.inf)
    counted = found.of_row >= 0
    np.maximum.at(last, found.of_row[counted], known.time[counted])
    back = next_event_time(*_recorded_returns(known), found.node[follows], last[before])
    start = found.time[follows]
    since[follows] = (start - np.where(back <= start, back, last[before])) / DAY_S
    return since


def unhelpful_repair_share(found: AttributedIncidents, since_d: Floats, as_of: float) -> float:
    """Return the share of this fleet's repairs that leave the fault in place, shrunk to the published one.

    Faults in the three days after an episode ends show how many come by chance. Each node counts once, however often
    it fails: a lemon must not make relapses look usual.
    """
    first = np.r_[True, found.node[1:] != found.node[:-1]][: found.node.size]
    seen = np.flatnonzero(first & (found.time < as_of - (2 * EPISODE_D + 1) * DAY_S))
    following = np.minimum(seen + 1, max(found.node.size - 1, 0))
    follows = (found.node[following] == found.node[seen]) & (following > seen)
    after_d = np.where(follows, since_d[following], np.inf)
    weight = found.weight[seen]
    heavy = weight * np.minimum(found.weight[following], 1.0)
    again, later = (float(heavy[(low <= after_d) & (after_d < low + EPISODE_D)].sum()) for low in (0.0, EPISODE_D))
    left = max(float(weight.sum()) - again, 1.0)
    own = again - later / left * float(weight.sum())
    share = (own + UNHELPFUL_SHARE * PUBLISHED_WEIGHT) / (float(weight.sum()) + PUBLISHED_WEIGHT)
    return float(np.clip(share, 0.0, UNHELPFUL_MAX))


def relapse_rate(since_d: Floats, unhelpful: float) -> Floats:
    """Return, at each incident, the rate per day at which the fault before it would return; 0 in a new episode.

    `unhelpful` is the share of first repairs that leave a fault in place.
    """
    again = since_d < EPISODE_D
    withstood = again & np.r_[False, again[:-1]][: again.size]
    share = np.where(withstood, min(STUBBORN * unhelpful, UNHELPFUL_MAX), unhelpful)
    return np.where(again, share / RELAPSE_D * np.exp(-np.minimum(since_d, EPISODE_D) / RELAPSE_D), 0.0)


def _recorded_returns(known: History) -> tuple[Ints, Floats]:
    """Return (node, time) of what ended an outage."""
    node, done = completed_repairs(known)
    ended = known.take(known.of(Kind.FAILURE, Kind.REMOVED, Kind.CORDONED) & np.isfinite(known.end))
    seen = known.take(known.of(Kind.RETURNED))
    return np.concatenate([node, ended.node, seen.node]), np.concatenate([done, ended.end, seen.time])
