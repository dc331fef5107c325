"""What is refused of one report or one look at the scheduler hides nothing else of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from remediator.engine.batch_writer import BatchWriter
from remediator.model.pipeline_inputs import FindingsReported, HoldsObserved, Tick
from remediator.model.scheduler_hold import HoldOwner, SchedulerNodeState
from remediator.store.journal import Journal
from tests.timelines.timeline import GPU, START, settings
from vocabulary.finding import Finding, Severity, finding_id

POISON = "n\ud800"  # half a character is no text: neither JSON nor a column takes it


@pytest.fixture
def batches(tmp_path: Path) -> Iterator[BatchWriter]:
    journal = Journal(f"sqlite:///{tmp_path}/r.db")
    yield BatchWriter(journal, journal.lead(), settings(), threading.Event())
    journal.close()


def finding(code: str, summary: str = "s", severity: Severity = Severity.FATAL) -> Finding:
    return Finding(
        id=finding_id("n1", "xid", code, GPU, "b"),
        node="n1",
        check="xid",
        code=code,
        component=GPU,
        severity=severity,
        summary=summary,
        first_seen=START,
        last_seen=START,
        origin="b",
    )


def report(*changes: Finding, active: tuple[Finding, ...] | None = None) -> FindingsReported:
    return FindingsReported(at=START, node="n1", boot_id="b", changes=changes, active=active)


def known(batches: BatchWriter) -> dict[str, bool]:
    return {f.code: f.active for f in batches.state.findings.values()}


GOOD, BAD, OTHER = finding("79"), finding("31", POISON, Severity.WARNING), finding("48")


def test_a_refused_finding_hides_no_good_one_of_the_same_report(batches: BatchWriter) -> None:
    assert batches.write([report(BAD, GOOD, active=(BAD, GOOD, OTHER)), Tick(at=START)])
    assert known(batches) == {"79": True, "48": True}
    assert batches.set_aside == 1
    incident = batches.state.incident_of("n1")
    assert incident is not None
    assert set(incident.findings) == {GOOD.id, OTHER.id}


def test_what_the_report_clears_and_asserts_again_counts_as_well(batches: BatchWriter) -> None:
    batches.write([report(GOOD, OTHER), report(GOOD.cleared(START + 1, "proof"))])
    batches.write([report(BAD, active=(GOOD, BAD))])
    assert known(batches) == {"79": True, "48": False}, "one asserted again, one not any more"
    assert batches.set_aside == 1


def test_a_node_whose_name_is_refused_is_set_aside_once(batches: BatchWriter) -> None:
    nameless = FindingsReported(at=START, node=POISON, boot_id="b", changes=(GOOD, OTHER), active=(GOOD, OTHER))
    batches.write([nameless])
    assert batches.set_aside == 1


def test_a_refused_node_hides_no_hold_of_another(batches: BatchWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    batches.write([report(GOOD)])
    seen: list[str] = []
    commit = batches._journal.commit

    def picky(inputs: list[HoldsObserved], *others: object) -> None:
        nodes = [hold.node for item in inputs for hold in item.holds]
        if "n2" in nodes:
            raise ValueError("no")
        seen.extend(nodes)
        commit(inputs, *others)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(batches._journal, "commit", picky)
    holds = tuple(SchedulerNodeState(node=f"n{n}", schedulable=False, owner=HoldOwner.OPERATOR) for n in (1, 2, 3))
    batches.write([HoldsObserved(at=START, holds=holds)])
    assert seen == ["n1", "n3"]
    assert batches.set_aside == 1
