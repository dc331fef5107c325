"""The stacks of an incident's ranks: one tree over all nodes' bundles, for operators."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from remediator.api import stack_handlers
from remediator.model.views_evidence import EvidenceEntry
from remediator.store.evidence_store import EvidenceStore
from tests.unit.remediator.api.in_process_controller import Inside
from vocabulary.messages.evidence_bundle import EVIDENCE_VERSION, EvidenceBundle, RankStack
from vocabulary.messages.wire import encode_message

MAIN = "<module> (train.py:40)"
WAITS = "all_reduce (torch/distributed/distributed_c10d.py:3252)"
READS = "__next__ (torch/utils/data/dataloader.py:725)"


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Inside]:
    centre = Inside(tmp_path)
    yield centre
    centre.close()


def stack(rank: int, frames: tuple[str, ...] = (MAIN, WAITS), at: float = 5.0, attempt: int = 1) -> RankStack:
    return RankStack("train", attempt, rank, 100 + rank, at, "torch", frames)


def keep(centre: Inside, order: str, stacks: tuple[RankStack, ...], incident: str = "i1") -> None:
    bundle = EvidenceBundle(version=EVIDENCE_VERSION, node="n1", boot_id="b", taken_at=2.0, from_at=1.0, stacks=stacks)
    content = gzip.compress(encode_message(bundle))
    EvidenceStore(centre.journal.engine).keep(EvidenceEntry(order, incident, "n1", 1.0, len(content)), content)


def read(centre: Inside, incident: str = "i1") -> Any:
    return centre.call("GET", f"/v1/incidents/{incident}/stacks", "ann").json()["jobs"]


def test_the_ranks_of_all_nodes_are_one_tree(centre: Inside) -> None:
    keep(centre, "o1", (stack(0), stack(1, at=4.0)))
    keep(centre, "o2", (stack(2), stack(3, (MAIN, READS), at=6.0)))
    (job,) = read(centre)
    assert (job["job"], job["attempt"], job["ranks"], job["from_at"], job["to_at"]) == ("train", 1, 4, 4.0, 6.0)
    assert job["places"] == {"collective": 3, "data": 1}
    assert job["lines"] == [
        "ranks 0-3",
        f"  {MAIN}",
        "  rank 3, in data",
        f"    {READS}",
        "  ranks 0-2, in collective",
        f"    {WAITS}",
    ]


def test_the_newest_stack_of_a_rank_counts_also_when_its_bundle_came_first(centre: Inside) -> None:
    keep(centre, "o1", (stack(3, (MAIN, READS), at=6.0),))
    keep(centre, "o2", (stack(3), stack(3, attempt=2)))
    first, second = read(centre)
    assert (first["places"], second["attempt"]) == ({"data": 1}, 2)


def test_a_later_bundle_is_seen(centre: Inside) -> None:
    assert read(centre) == []
    keep(centre, "o1", (stack(0),))
    assert read(centre)[0]["ranks"] == 1
    keep(centre, "o2", (stack(1),))
    assert read(centre)[0]["ranks"] == 2
    assert read(centre, "i2") == []


def test_a_bundle_that_cannot_be_read_hides_no_other(centre: Inside) -> None:
    keep(centre, "o1", (stack(0),))
    EvidenceStore(centre.journal.engine).keep(EvidenceEntry("o2", "i1", "n1", 1.0, 3), b"abc")
    assert read(centre)[0]["ranks"] == 1


def test_a_tree_of_any_node_is_bounded(centre: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tuple(f"{'f' * 1000}{number} (a.py:1)" for number in range(5000))
    keep(centre, "o1", (stack(0, deep), *(stack(rank, (f"f{rank} (a.py:1)",)) for rank in range(1, 1000))))
    monkeypatch.setattr(stack_handlers, "LINES_MAX", 50)
    (job,) = read(centre)
    assert len(job["lines"]) == 51
    assert job["lines"][-1].endswith("more lines")
    keep(centre, "o2", (stack(0, deep),), "i2")
    assert len(read(centre, "i2")[0]["lines"]) == 51
    monkeypatch.setattr(stack_handlers, "LINES_MAX", 5000)
    keep(centre, "o3", (stack(0, deep),), "i3")
    assert len(read(centre, "i3")[0]["lines"]) == 1 + stack_handlers.FRAMES_MAX
    assert all(len(line) <= stack_handlers.LINE_CHARS_MAX for line in job["lines"])


def test_stacks_are_for_operators(centre: Inside) -> None:
    assert centre.call("GET", "/v1/incidents/i1/stacks", "vic").status == 403
