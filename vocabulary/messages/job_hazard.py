"""The current failure rate of a job's nodes: computed by the controller, used to schedule checkpoints."""

from __future__ import annotations

import msgspec


class NodeRisk(msgspec.Struct, frozen=True):
    """A node with a raised failure rate: how many times the usual rate, and why."""

    node: str
    factor: float
    why: str


class JobHazard(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /v1/hazard/{job}`.

    `per_s` is the failures per second of the whole job; valid for `valid_s` from `at` on (UTC seconds).
    """

    job: str
    attempt: int
    nodes: int
    per_s: float
    at: float
    valid_s: float
    risks: tuple[NodeRisk, ...] = ()


class Placement(msgspec.Struct, frozen=True):
    """`GET /v1/placement`: where a job of so many nodes would live longest, and how much the choice gains.

    `avoided` are free nodes with a raised failure rate, worst first; failures per second of the whole job on the chosen
    nodes, and on as many picked at random.
    """

    chosen: tuple[str, ...]
    avoided: tuple[NodeRisk, ...]
    per_s: float
    per_s_at_random: float
