from __future__ import annotations

import gc
from typing import Any

import msgspec

from remediator.fleet.report_registry import HEARTBEATS_KEPT, WINDOWS_KEPT, ReportRegistry
from vocabulary.health import Health
from vocabulary.messages.heartbeat import Heartbeat, build_heartbeat, newest_windows
from vocabulary.messages.wire import Gpu, RankStatus, Report, StepWindow, decode_message, encode_message


def report(agent: str, seq: int, sent_at: float, job: str) -> Report:
    rank = RankStatus(job, 0, 0, 1, 1, 5, "step", sent_at)
    return Report(
        version=1,
        node="n1",
        boot_id="b",
        agent=agent,
        seq=seq,
        sent_at=sent_at,
        ttl_s=30,
        health=Health.HEALTHY,
        ranks=(rank,),
    )


def jobs(report_registry: ReportRegistry) -> list[str]:
    entry = report_registry.get("n1")
    assert entry is not None
    return [ref.job for ref in entry.jobs]


def test_a_new_agent_is_believed_although_the_old_ones_clock_was_ahead() -> None:
    report_registry = ReportRegistry()
    report_registry.take(report("a", 5, 90_000.0, "old"), 0.0)
    report_registry.take(report("b", 1, 3_600.0, "new"), 1.0)
    assert jobs(report_registry) == ["new"]
    report_registry.take(report("a", 6, 90_001.0, "old"), 2.0)
    assert jobs(report_registry) == ["new"], "an agent that was superseded is old for good"
    report_registry.take(report("b", 1, 3_600.0, "older"), 3.0)
    assert jobs(report_registry) == ["new"], "a repeated report says nothing new"


def test_what_the_pipeline_knows_replaces_nothing_that_was_reported_meanwhile() -> None:
    """The deciding thread says so, while the next report comes in on another."""
    report_registry = ReportRegistry()
    _, entry = report_registry.take(report("a", 1, 1.0, "j"), 0.0)
    assert not report_registry.knows("n1", frozenset())
    report_registry.mark_applied("n1", frozenset({"f"}))
    assert report_registry.get("n1") is entry
    assert report_registry.knows("n1", frozenset({"f"}))
    report_registry.take(report("b", 1, 2.0, "j"), 1.0)
    assert report_registry.knows("n1", frozenset({"f"})), "whatever process said it"


def test_a_fleets_entries_are_nothing_that_the_collector_of_cycles_walks_over() -> None:
    """With 100 000 ranks tracked, each full collection stopped every answer for a sixth of a second."""
    window = StepWindow(first=0, size=8, steps=8, step_s=1.0)
    rank = RankStatus("j", 0, 0, 1, 1, 5, "step", 1.0, sections={"data": 0.1}, windows=(window,))
    said = msgspec.structs.replace(report("a", 1, 1.0, "j"), ranks=(rank,), gpus=(Gpu(0, "GPU-1", "0000:3b:00.0"),))
    _, entry = ReportRegistry().take(decode_message(encode_message(said), Report), 0.0)
    gc.collect()  # tuples and dictionaries of such things are found out to be the same
    share = entry.reported_shares[0]
    parts = (
        entry,
        entry.reported_ranks,
        entry.reported_ranks[0],
        entry.packed,
        entry.progress,
        entry.gpus,
        entry.gpus[0],
        entry.jobs,
        entry.reported_shares,
    )
    of_share = (
        share,
        share.ranks,
        share.places,
        share.communication,
        share.stages,
        share.own_s,
        share.steps_s,
        share.phases,
    )
    assert not [part for part in (*parts, *of_share) if gc.is_tracked(part)]


def test_windows_are_kept_packed_and_given_back_as_they_were_told() -> None:
    windows = tuple(StepWindow(first=8 * n, size=8, steps=8, step_s=0.1 * n, tokens=None) for n in range(8))
    ranks = tuple(RankStatus("j", 0, n, 3, 1, 5, "step", 1.0, windows=windows[n:]) for n in (0, 8, 5))
    for told in (ranks, ranks[1:2], ()):
        said = msgspec.structs.replace(report("a", 1, 1.0, "j"), ranks=told)
        _, entry = ReportRegistry().take(decode_message(encode_message(said), Report), 0.0)
        assert entry.whole_ranks() == told
        kept = (*entry.ranks, *(rank for share in entry.shares for rank in share.ranks))
        assert not any(rank.windows for rank in kept)


WINDOWS = tuple(StepWindow(8 * n, 8, 8, 0.5, 0.25) for n in range(20))
RANKS = (
    RankStatus("j", 0, 0, 2, 1, 5, "step", 1.0, 0.5, sections_median={"communication": 0.125, "data": 0.25}),
    RankStatus("k", 0, 0, 1, 2, 5, "step", 1.0, 0.5, sections_median={"data": 0.5, "communication": 0.25}),
    RankStatus("j", 0, 1, 2, 3, 5, "step", 1.0, 0.5, alive=False),
)


def whole(seq: int, **news: Any) -> Report:
    return msgspec.structs.replace(report("a", seq, 1.0, "j"), ranks=RANKS, **news)


def moved(said: Report, seq: int, windows: tuple[StepWindow, ...] = ()) -> Report:
    """The same node later: every rank that lives has done a step a report."""
    ranks = tuple(
        msgspec.structs.replace(r, step=seq, at=float(seq), step_median=0.75, phase="save", windows=windows)
        if r.alive
        else r
        for r in said.ranks
    )
    return msgspec.structs.replace(said, seq=seq, sent_at=float(seq), ranks=ranks)


def beat(base: Report, now: Report, before: Report) -> Heartbeat:
    found = build_heartbeat(base, now, newest_windows(before))
    assert found is not None
    return found


def registered(said: Report) -> ReportRegistry:
    found = ReportRegistry()
    found.take(said, 0.0)
    found.mark_applied("n1", frozenset(finding.id for finding in said.active))
    return found


def test_after_a_heartbeat_the_node_is_seen_as_after_the_report_that_it_replaces() -> None:
    base, later = whole(1), moved(whole(1), 2, WINDOWS[:2])
    by_heartbeat, by_report = registered(base), registered(base)
    entry = by_heartbeat.beat("n1", beat(base, later, base), 9.0)
    _, same = by_report.take(later, 9.0)
    assert entry is not None
    assert (entry.seq, entry.sent_at, entry.seen_at) == (same.seq, same.sent_at, same.seen_at)
    assert entry.whole_ranks() == same.whole_ranks()
    assert entry.ranks == same.ranks
    for one, other in zip(entry.shares, same.shares, strict=True):
        fields = {f for f in one.__struct_fields__ if f not in ("ranks", "heartbeat")}
        assert {f: getattr(one, f) for f in fields} == {f: getattr(other, f) for f in fields}
        assert [one.progress_of(n) for n in range(len(one.ranks))] == [
            other.progress_of(n) for n in range(len(other.ranks))
        ]


def test_a_heartbeat_of_another_report_is_not_taken() -> None:
    base = whole(1)
    news = beat(base, moved(base, 3), base)
    change = msgspec.structs.replace
    assert ReportRegistry().beat("n1", news, 9.0) is None, "a new leader has no report"
    assert registered(base).beat("n1", change(news, agent="b"), 9.0) is None
    assert registered(base).beat("n1", change(news, base=2), 9.0) is None
    assert registered(base).beat("n1", change(news, ranks=news.ranks * 2, words=news.words), 9.0) is None
    assert registered(base).beat("n1", change(news, sections=b""), 9.0) is None
    known = registered(base)
    known.mark_applied("n1", frozenset({"f"}))
    assert known.beat("n1", news, 9.0) is None, "the pipeline has other findings than the report"
    known = registered(base)
    first = known.beat("n1", news, 9.0)
    assert first is not None
    assert known.beat("n1", news, 19.0) is first, "repeated after a lost answer: the node is not seen again"
    assert known.beat("n1", change(news, seq=2), 19.0) is first
    assert known.get("n1") is first


def test_the_newest_windows_are_kept_each_once() -> None:
    base = moved(whole(1), 1, WINDOWS[:3])
    known, before = registered(base), base
    for seq in range(2, 14):
        now = moved(base, seq, WINDOWS[: seq + 2] if seq % 3 else before.ranks[0].windows)
        entry = known.beat("n1", beat(base, now, base if seq == 5 else before), 9.0)  # 5: the answer to 4 was lost
        assert entry is not None
        kept, told = entry.whole_ranks()[0].windows, now.ranks[0].windows
        assert kept == told[-len(kept) :]
        assert 4 <= len(kept) <= WINDOWS_KEPT or len(told) < 4
        assert len(entry.heartbeats) <= HEARTBEATS_KEPT
        before = now
