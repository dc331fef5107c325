"""What goes into the localiser and what comes out: plain frozen records."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

Pair = tuple[str, str]
Round = tuple[Pair, ...]


class Why(str, enum.Enum):
    """Why a result has no number. A hang or an error accuses; what was not run says nothing."""

    MEASURED = ""
    HANG = "hang"
    ERROR = "error"
    NOT_RUN = "not_run"


class PairResult(NamedTuple):
    """One test of two nodes (or of two GPUs of a node) in one round.

    `rail` is the NIC index that both ends used, or None for all together. `value` is a rate, more is better, in any unit
    that is the same for all; what is no number above zero (NaN, infinity, 0, −1) is no measurement, and says nothing.
    """

    round: int
    a: str
    b: str
    rail: int | None
    value: float | None
    why: Why = Why.MEASURED


@dataclass(frozen=True)
class Topology:
    """All nodes that should have been tested, and the leaf switch that each hangs on; a node not in `leaf_of` hangs on an unknown one."""

    nodes: tuple[str, ...]
    leaf_of: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PairExpectations:
    """What a healthy pair should reach, in the unit of the results; the smallest that is known for a pair counts.

    Without any the data alone decide. Under `floor` of the expected value *most* pairs of a class accuse nobody: that is
    said of the class. `slowdown_min` is the smallest share lost that is worth a name.
    """

    inside: float | None = None
    across: float | None = None
    of_node: Mapping[str, float] = field(default_factory=dict)
    floor: float = 0.9
    slowdown_min: float = 0.05


class Kind(str, enum.Enum):
    """What can be at fault."""

    NODE = "node"
    LINK = "link"
    SWITCH = "switch"
    NIC = "nic"


@dataclass(frozen=True, order=True)
class Accused:
    """A culprit, or a suspect to confirm.

    `where` is (node,), (node, node), (leaf,) or, for a path between two leaves, (leaf, leaf) with `kind` switch. `rail` is
    None where no single rail is meant. `score` is the best share of the baseline that it reached (0: never an answer),
    `margin` how far that lies under the bound of noise, both as shares of 1. `evidence` is one sentence each.
    """

    kind: Kind
    where: tuple[str, ...]
    rail: int | None = None
    score: float = 0.0
    margin: float = 0.0
    evidence: tuple[str, ...] = ()


class Conclusion(str, enum.Enum):
    """What the results together say. Only NOBODY says that all is well."""

    CULPRITS = "culprits"
    NOBODY = "nobody"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class LocalisationVerdict:
    """Who is named, who must be confirmed first, who proved good, and of whom nothing is known.

    `cleared` nodes reached the baseline with at least one partner on every rail that was measured, and nothing speaks against them: these are the
    partners for a confirmation. `unreadable` counts results that were no measurement. `reasons` say what else was seen.
    """

    conclusion: Conclusion
    culprits: tuple[Accused, ...]
    suspects: tuple[Accused, ...]
    cleared: tuple[str, ...]
    unknown: tuple[str, ...]
    unreadable: int
    reasons: tuple[str, ...]
