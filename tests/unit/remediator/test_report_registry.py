from __future__ import annotations

import gc

import msgspec

from remediator.fleet.report_registry import ReportRegistry
from vocabulary.health import Health
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
    share = entry.shares[0]
    parts = (
        entry,
        entry.ranks,
        entry.ranks[0],
        entry.packed,
        entry.gpus,
        entry.gpus[0],
        entry.jobs,
        entry.shares,
    )
    of_share = (share, share.ranks, share.stages, share.own_s, share.steps_s, share.phases)
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
