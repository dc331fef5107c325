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
