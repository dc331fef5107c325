"""Input and output records of the localisation."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

Pair = tuple[str, str]
Round = tuple[Pair, ...]


class Why(str, enum.Enum):
    """Why a result has no number. A hang or an error is evidence; a test that did not run is not."""

    MEASURED = ""
    HANG = "hang"
    ERROR = "error"
    NOT_RUN = "not_run"


class PairResult(NamedTuple):
    """One test of two nodes (or of two GPUs of a node) in one round.

    `rail` is the NIC index that both ends used, or None for all together. `value` is a rate in a common unit, more is better;
    a value that is not a number above zero (NaN, infinity, 0, −1) is ignored.
    """

    round: int
    a: str
    b: str
    rail: int | None
    value: float | None
    why: Why = Why.MEASURED


@dataclass(frozen=True)
class Topology:
    """All nodes that should be tested, and their leaf switches; a node not in `leaf_of` is under an unknown one."""

    nodes: tuple[str, ...]
    leaf_of: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class PairExpectations:
    """The expected rate of a healthy pair, in the unit of the results; the smallest known value for a pair counts.

    Without expectations only the data decide. If *most* pairs of a class are under `floor` of the expected value, the class is
    reported instead of a node. `slowdown_min` is the smallest reported loss.
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
    None if no single rail is meant. `score` is its best share of the baseline (0: never a result), `margin` the distance
    below the noise bound, both as shares of 1. `evidence` is one sentence each.
    """

    kind: Kind
    where: tuple[str, ...]
    rail: int | None = None
    score: float = 0.0
    margin: float = 0.0
    evidence: tuple[str, ...] = ()


class Conclusion(str, enum.Enum):
    """The conclusion from all results. Only NOBODY means that all is well."""

    CULPRITS = "culprits"
    NOBODY = "nobody"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class LocalisationVerdict:
    """Culprits, suspects, cleared nodes, and nodes without data.

    `cleared` nodes reached the baseline with at least one partner on every measured rail, without contrary evidence: these are
    the partners for confirmation. `unreadable` counts invalid results. `reasons` list other observations.
    """

    conclusion: Conclusion
    culprits: tuple[Accused, ...]
    suspects: tuple[Accused, ...]
    cleared: tuple[str, ...]
    unknown: tuple[str, ...]
    unreadable: int
    reasons: tuple[str, ...]
