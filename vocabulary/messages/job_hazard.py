"""How likely the nodes of a job are to fail now: what the centre computes, and a training loop sets its checkpoints by."""

from __future__ import annotations

import msgspec


class NodeRisk(msgspec.Struct, frozen=True):
    """A node that is likelier to fail than others: how many times as likely, and why."""

    node: str
    factor: float
    why: str


class JobHazard(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /v1/hazard/{job}`. `per_s` is the failures per second of the whole job; true for `valid_s` from `at` on (UTC seconds)."""

    job: str
    attempt: int
    nodes: int
    per_s: float
    at: float
    valid_s: float
    risks: tuple[NodeRisk, ...] = ()


class Placement(msgspec.Struct, frozen=True):
    """`GET /v1/placement`: where a job of so many nodes would live longest, and what the choice is worth.

    `avoided` are free nodes that are likelier to fail than a usual one, worst first; failures per second of the whole job on the
    chosen nodes, and on as many picked at random.
    """

    chosen: tuple[str, ...]
    avoided: tuple[NodeRisk, ...]
    per_s: float
    per_s_at_random: float
