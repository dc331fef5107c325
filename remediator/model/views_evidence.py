"""API views of stored evidence. Times are UTC seconds."""

from __future__ import annotations

import msgspec


class EvidenceEntry(msgspec.Struct, frozen=True):
    """One bundle: its order, the node that sent it, when it arrived, and its size on disk."""

    order: str
    incident: str
    node: str
    at: float
    bytes: int


class EvidenceList(msgspec.Struct, frozen=True):
    """`GET /v1/incidents/{id}/evidence`, oldest first."""

    evidence: tuple[EvidenceEntry, ...]


class JobStacks(msgspec.Struct, frozen=True):
    """Where the ranks of one attempt of a job were: a tree as lines of text, outermost frames first.

    `places` counts the ranks by what they waited for; `from_at` and `to_at` are when the first and the last was read.
    """

    job: str
    attempt: int
    ranks: int
    from_at: float
    to_at: float
    places: dict[str, int]
    lines: tuple[str, ...]


class IncidentStacks(msgspec.Struct, frozen=True):
    """`GET /v1/incidents/{id}/stacks`, by job and attempt."""

    jobs: tuple[JobStacks, ...]
