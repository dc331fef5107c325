"""What the centre answers about the evidence it keeps. Times are UTC seconds."""

from __future__ import annotations

import msgspec


class EvidenceEntry(msgspec.Struct, frozen=True):
    """One bundle: the order it answers, the node that sent it, when it came, and its size on the disk."""

    order: str
    incident: str
    node: str
    at: float
    bytes: int


class EvidenceList(msgspec.Struct, frozen=True):
    """`GET /v1/incidents/{id}/evidence`, oldest first."""

    evidence: tuple[EvidenceEntry, ...]
