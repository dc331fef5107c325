"""The digests that a device computed, as stored in a result's evidence, with golden digests. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from preflight.results import Evidence, Result

PLATFORM, VOTES, DIGESTS, GOLDENS, OBJECTED = "platform", "votes", "digests", "goldens", "objected"
REFUSED = "refused_types"


class ComputedDigests(msgspec.Struct, frozen=True, kw_only=True):
    """The digests of one device's works, by name of the work (`bf16 8192 seed 20241`).

    `platform` contains everything else that determines the bits: only digests of equal platforms compare. A partial device
    (MIG) does not vote. `goldens` are the digests on record for the same works on this platform. `objected` are the works whose
    bits repeat but fail the device's own verification: empty if anything else was wrong. `refused` are the types (first word of a
    work's name) that its library does not support.
    """

    platform: str
    votes: bool
    digests: Mapping[str, str]
    goldens: Mapping[str, str] = {}
    objected: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    def evidence(self) -> Evidence:
        """The form stored in a result's evidence."""
        told: Evidence = {PLATFORM: self.platform, VOTES: self.votes, DIGESTS: _encode_digests(self.digests)}
        told |= {GOLDENS: _encode_digests(self.goldens)} if self.goldens else {}
        told |= {OBJECTED: ", ".join(self.objected)} if self.objected else {}
        return told | ({REFUSED: ", ".join(self.refused)} if self.refused else {})

    def has(self, kind: str) -> bool:
        """Whether it computed a work of this type."""
        return any(work.partition(" ")[0] == kind for work in self.digests)


def parse_computed_digests(result: Result) -> ComputedDigests | None:
    """Parse the digests in a result's evidence; None if there is nothing to compare."""
    evidence = result.evidence
    digests = _decode_digests(str(evidence.get(DIGESTS, "")))
    platform = str(evidence.get(PLATFORM, ""))
    if not digests or not platform:
        return None
    goldens = _decode_digests(str(evidence.get(GOLDENS, "")))
    return ComputedDigests(
        platform=platform,
        votes=evidence.get(VOTES) is True,
        digests=digests,
        goldens=goldens,
        objected=_split_evidence_list(evidence, OBJECTED),
        refused=_split_evidence_list(evidence, REFUSED),
    )


def _split_evidence_list(evidence: Evidence, name: str) -> tuple[str, ...]:
    return tuple(str(evidence[name]).split(", ")) if evidence.get(name) else ()


def _encode_digests(digests: Mapping[str, str]) -> str:
    return ", ".join(f"{work}: {digest}" for work, digest in digests.items())


def _decode_digests(text: str) -> dict[str, str]:
    pairs = (each.rpartition(": ") for each in text.split(", ") if each)
    return {work: digest for work, _, digest in pairs if work and digest}
