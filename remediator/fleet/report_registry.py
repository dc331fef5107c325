"""Each node's last report, in memory: every report repeats the whole state, so a restart loses nothing.

Thread-safe by replacement: an entry is a frozen record, and a reader sees the old or the new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from remediator.model.job_share import JobShare, build_job_shares, update_job_shares
from remediator.model.journal_records import JobRef
from vocabulary.health import Health
from vocabulary.messages.heartbeat import (
    Heartbeat,
    apply_heartbeat,
    fits_report,
    pack_progress,
    read_windows,
    strip_rank_progress,
)
from vocabulary.messages.swap_messages import JobSwap
from vocabulary.messages.wire import Gpu, RankStatus, Report, StepWindow, Versions

AGENTS_REMEMBERED = 8
WINDOWS_KEPT = 8  # of a rank, once they come by heartbeat
HEARTBEATS_KEPT = 4  # with windows: as many as healthd repeats in a whole report; the watch reads them within seconds
_unpacked = msgspec.msgpack.Decoder(tuple[StepWindow, ...]).decode


class ReportEntry(msgspec.Struct, frozen=True, gc=False):
    """One node's last report, without its findings, and the heartbeats since.

    Plain data that the cycle collector need not traverse: a fleet has much of it.

    Ranks are kept without their progress and without step windows, which are most of a report: both are packed, and
    unpacked only for whoever needs them.
    """

    node: str
    boot_id: str
    agent: str
    base: int  # number of the whole report
    seq: int  # of the newest heartbeat, or of the report
    sent_at: float
    seen_at: float
    ttl_s: float
    health: Health
    gpus: tuple[Gpu, ...]
    reported_ranks: tuple[RankStatus, ...]  # as in the whole report, without progress
    jobs: tuple[JobRef, ...]
    superseded: tuple[str, ...]  # earlier agents of this node: their reports are old, whatever their clocks say
    versions: Versions
    asserted: frozenset[str] = frozenset()  # ids of its active findings
    reported_shares: tuple[JobShare, ...] = ()  # of `jobs`, in order
    packed: tuple[bytes, ...] = ()  # the windows of each of `reported_ranks`; empty if it has none
    swaps: tuple[JobSwap, ...] = ()  # of jobs whose launcher runs there
    sections: int = 0  # median section times of all ranks together
    progress: Heartbeat | None = None  # of the ranks in the whole report; None: `reported_ranks` have it
    heartbeats: tuple[Heartbeat, ...] = ()  # the newest ones, oldest first

    @property
    def _newest(self) -> Heartbeat | None:
        return self.heartbeats[-1] if self.heartbeats else self.progress

    @property
    def ranks(self) -> tuple[RankStatus, ...]:
        """Its ranks now, without windows."""
        newest = self._newest
        return self.reported_ranks if newest is None else tuple(apply_heartbeat(self.reported_ranks, newest))

    @property
    def shares(self) -> tuple[JobShare, ...]:
        """Its share of each of `jobs`, in order."""
        newest = self._newest
        return self.reported_shares if newest is None else update_job_shares(self.reported_shares, newest)

    def whole_ranks(self) -> tuple[RankStatus, ...]:
        """Return its ranks with the newest windows."""
        windows = [unpack_windows(packed) for packed in self.packed]
        for heartbeat in self.heartbeats:
            windows = [join_windows(*each) for each in zip(windows, read_windows(heartbeat), strict=True)]
        return tuple([replace(rank, windows=w) if w else rank for rank, w in zip(self.ranks, windows, strict=True)])

    def ranks_of(self, ref: JobRef) -> list[RankStatus]:
        """Return the ranks of one attempt of a job, with the newest windows."""
        return [rank for rank in self.whole_ranks() if rank.attempt == ref.attempt and rank.job == ref.job]

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
        progress = pack_progress(report)
        ranks = tuple(map(_drop_windows, report.ranks)) if progress is None else strip_rank_progress(report.ranks)
        shares = build_job_shares(ranks)
        superseded = before.superseded if before else ()
        if before is not None and before.agent != report.agent:
            superseded = (*superseded, before.agent)[-AGENTS_REMEMBERED:]
        entry = ReportEntry(
            node=report.node,
            boot_id=report.boot_id,
            agent=report.agent,
            base=report.seq,
            seq=report.seq,
            sent_at=report.sent_at,
            seen_at=now,
            ttl_s=report.ttl_s,
            health=report.health,
            gpus=report.gpus,
            reported_ranks=ranks,
            jobs=tuple([share.ref for share in shares]),
            superseded=superseded,
            versions=_tidy_versions(report, before),
            asserted=frozenset([finding.id for finding in report.active]),
            reported_shares=shares,
            packed=tuple([_pack_windows(rank.windows) for rank in report.ranks]),
            swaps=report.swaps,
            progress=progress,
            sections=sum([len(rank.sections_median) for rank in ranks]),
        )
        self._entries[report.node] = entry
        return before, entry

    def beat(self, node: str, heartbeat: Heartbeat, now: float) -> ReportEntry | None:
        """Apply a heartbeat and return the node's entry; None if the report that it updates is not the one here.

        The same, too, if the pipeline does not have the findings of that report.
        """
        entry = self._entries.get(node)
        if entry is None or entry.agent != heartbeat.agent or entry.base != heartbeat.base:
            return None
        if self._told.get(node) != entry.asserted:
            return None
        if not fits_report(heartbeat, len(entry.reported_ranks), entry.sections):
            return None
        if heartbeat.seq <= entry.seq:  # a repeated one
            return entry
        before = entry.heartbeats
        if before and not before[-1].windows:
            before = before[:-1]
        beats = (*before[1 - HEARTBEATS_KEPT :], heartbeat)
        packed = entry.packed if len(beats) < HEARTBEATS_KEPT else (b"",) * len(entry.packed)
        entry = replace(
            entry, seq=heartbeat.seq, sent_at=heartbeat.sent_at, seen_at=now, heartbeats=beats, packed=packed
        )
        self._entries[node] = entry
        return entry

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


def unpack_windows(packed: bytes) -> tuple[StepWindow, ...]:
    """Return a rank's windows of a whole report."""
    return _unpacked(packed) if packed else ()


def attach_windows(ranks: Sequence[RankStatus], packed: Sequence[bytes]) -> list[RankStatus]:
    """Return the ranks of a whole report with their windows, as reported."""
    return [
        replace(rank, windows=unpack_windows(own)) if own else rank for rank, own in zip(ranks, packed, strict=True)
    ]


def join_windows(known: tuple[StepWindow, ...], new: tuple[StepWindow, ...]) -> tuple[StepWindow, ...]:
    """Return the newest windows of a rank. One that was sent again after a lost answer counts once."""
    if not new:
        return known
    again = {(window.first, window.size) for window in new}
    return (*(window for window in known if (window.first, window.size) not in again), *new)[-WINDOWS_KEPT:]


def _drop_windows(rank: RankStatus) -> RankStatus:
    return replace(rank, windows=()) if rank.windows else rank


def _pack_windows(windows: tuple[StepWindow, ...]) -> bytes:
    return msgspec.msgpack.encode(windows) if windows else b""


def _tidy_versions(report: Report, before: ReportEntry | None) -> Versions:
    """Cached: versions hardly ever change, and reports come by the thousand."""
    if before is not None and report.versions == before.versions:
        return before.versions
    return report.versions.tidy()


def _is_stale_report(before: ReportEntry, report: Report) -> bool:
    if report.agent == before.agent:
        return report.seq <= before.seq
    return report.agent in before.superseded
