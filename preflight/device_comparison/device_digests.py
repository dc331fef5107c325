"""Which bits a device computed, as a result's evidence carries them: what was computed where, and what is known to be right. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from preflight.results import Evidence, Result

PLATFORM, VOTES, DIGESTS, GOLDENS, OBJECTED = "platform", "votes", "digests", "goldens", "objected"
REFUSED = "refused_types"


class ComputedDigests(msgspec.Struct, frozen=True, kw_only=True):
    """The digests of one device's works, each by the work's name (`bf16 8192 seed 20241`).

    `platform` is all that the bits depend on beside the work: only digests of the same one compare. A device that is a part of
    a card does not vote. `goldens` are the digests on record for this platform, of the same works. `objected` are the works whose
    bits repeat, and are wrong by the device's own judges: empty if anything else was wrong with it. `refused` are the types, the first word of a work's name,
    that its library would not compute.
    """

    platform: str
    votes: bool
    digests: Mapping[str, str]
    goldens: Mapping[str, str] = {}
    objected: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()

    def evidence(self) -> Evidence:
        """As a result carries it."""
        told: Evidence = {PLATFORM: self.platform, VOTES: self.votes, DIGESTS: _encode_digests(self.digests)}
        told |= {GOLDENS: _encode_digests(self.goldens)} if self.goldens else {}
        told |= {OBJECTED: ", ".join(self.objected)} if self.objected else {}
        return told | ({REFUSED: ", ".join(self.refused)} if self.refused else {})

    def has(self, kind: str) -> bool:
        """Whether it computed a work of this type."""
        return any(work.partition(" ")[0] == kind for work in self.digests)


def parse_computed_digests(result: Result) -> ComputedDigests | None:
    """What a result says was computed; None if it says nothing that could be compared."""
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
