"""Each node's last report, in memory: every report repeats the whole state, so a restart loses nothing.

Thread-safe by replacement: an entry is a frozen record, and a reader sees the old or the new one.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from remediator.model.job_share import JobShare, build_job_shares
from remediator.model.journal_records import JobRef
from vocabulary.health import Health
from vocabulary.messages.swap_messages import JobSwap
from vocabulary.messages.wire import Gpu, RankStatus, Report, StepWindow, Versions

AGENTS_REMEMBERED = 8
_unpacked = msgspec.msgpack.Decoder(tuple[StepWindow, ...]).decode


class ReportEntry(msgspec.Struct, frozen=True, gc=False):
    """One node's last report, without its findings.

    Plain data that the cycle collector need not traverse: a fleet has much of it.

    `ranks` are without step windows, which are most of a report and needed once: they are packed to a fifth of their
    size.
    """

    node: str
    boot_id: str
    agent: str
    seq: int
    sent_at: float
    seen_at: float
    ttl_s: float
    health: Health
    gpus: tuple[Gpu, ...]
    ranks: tuple[RankStatus, ...]
    jobs: tuple[JobRef, ...]
    superseded: tuple[str, ...]  # earlier agents of this node: their reports are old, whatever their clocks say
    versions: Versions
    shares: tuple[JobShare, ...] = ()  # of `jobs`, in order
    packed: tuple[bytes, ...] = ()  # the windows of each of `ranks`; empty if it has none
    swaps: tuple[JobSwap, ...] = ()  # of jobs whose launcher runs there

    def whole_ranks(self) -> tuple[RankStatus, ...]:
        """Return its ranks with windows, as reported."""
        return tuple([_unpack_rank(*each) for each in zip(self.ranks, self.packed, strict=True)])

    def bare_ranks_of(self, ref: JobRef) -> list[RankStatus]:
        """Return the ranks of one attempt of a job, without windows."""
        return [rank for rank in self.ranks if rank.attempt == ref.attempt and rank.job == ref.job]

    def ranks_of(self, ref: JobRef) -> list[RankStatus]:
        """Return the ranks of one attempt of a job, as reported."""
        each = zip(self.ranks, self.packed, strict=True)
        return [
            _unpack_rank(rank, packed) for rank, packed in each if rank.attempt == ref.attempt and rank.job == ref.job
        ]

    @property
    def products(self) -> tuple[str, ...]:
        """The product names of its GPUs, each once."""
        return tuple(sorted({gpu.name for gpu in self.gpus if gpu.name}))

    def health_at(self, now: float) -> Health:
        """Return the self-reported health, or unknown once it has been silent for longer than announced."""
        return self.health if now - self.seen_at <= self.ttl_s else Health.UNKNOWN


class ReportRegistry:
    """Entries by node name."""

    def __init__(self) -> None:
        self._entries: dict[str, ReportEntry] = {}
        self._told: dict[str, frozenset[str]] = {}  # separate from the entries, which another thread replaces

    def get(self, node: str) -> ReportEntry | None:
        """Return the node's entry, if it ever reported to this process."""
        return self._entries.get(node)

    def entries(self) -> list[ReportEntry]:
        """Return every node's last report."""
        return list(self._entries.values())

    def take(self, report: Report, now: float) -> tuple[ReportEntry | None, ReportEntry]:
        """Store a report.

        Returns the previous and the current entry; the same twice if the report is older than the last.
        """
        before = self._entries.get(report.node)
        if before is not None and _is_stale_report(before, report):
            return before, before
        ranks = tuple([replace(rank, windows=()) if rank.windows else rank for rank in report.ranks])
        shares = build_job_shares(ranks)
        superseded = before.superseded if before else ()
        if before is not None and before.agent != report.agent:
            superseded = (*superseded, before.agent)[-AGENTS_REMEMBERED:]
        entry = ReportEntry(
            node=report.node,
            boot_id=report.boot_id,
            agent=report.agent,
            seq=report.seq,
            sent_at=report.sent_at,
            seen_at=now,
            ttl_s=report.ttl_s,
            health=report.health,
            gpus=report.gpus,
            ranks=ranks,
            jobs=tuple([share.ref for share in shares]),
            superseded=superseded,
            versions=_tidy_versions(report, before),
            shares=shares,
            packed=tuple([_pack_windows(rank.windows) for rank in report.ranks]),
            swaps=report.swaps,
        )
        self._entries[report.node] = entry
        return before, entry

    def running(self, nodes: Iterable[str], now: float) -> dict[str, tuple[str, ...]]:
        """Return jobs with living ranks on `nodes`, by node; silent nodes are left out."""
        entries = filter(None, map(self._entries.get, nodes))
        return {e.node: tuple(ref.job for ref in e.jobs) for e in entries if now - e.seen_at <= e.ttl_s}

    def mark_applied(self, node: str, asserted: frozenset[str]) -> None:
        """Note that the pipeline has these findings as the node's whole active set.

        Callable from another thread than `take`.
        """
        self._told[node] = asserted

    def news_in(self, node: str, asserted: frozenset[str]) -> int:
        """Return how many of the node's active findings would start or end with these ids."""
        told = self._told.get(node, frozenset())
        return 0 if told == asserted else len(told ^ asserted)

    def knows(self, node: str, asserted: frozenset[str]) -> bool:
        """Return whether the pipeline has exactly these ids as the node's active findings."""
        return self._told.get(node) == asserted


def _pack_windows(windows: tuple[StepWindow, ...]) -> bytes:
    return msgspec.msgpack.encode(windows) if windows else b""


def _unpack_rank(rank: RankStatus, packed: bytes) -> RankStatus:
    return replace(rank, windows=_unpacked(packed)) if packed else rank


def _tidy_versions(report: Report, before: ReportEntry | None) -> Versions:
    """Cached: versions hardly ever change, and reports come by the thousand."""
    if before is not None and report.versions == before.versions:
        return before.versions
    return report.versions.tidy()


def _is_stale_report(before: ReportEntry, report: Report) -> bool:
    if report.agent == before.agent:
        return report.seq <= before.seq
    return report.agent in before.superseded
