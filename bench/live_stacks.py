"""What live stacks cost: opening the server in a rank, asking 8 real ranks, and the tree of 512 ranks.

python bench/live_stacks.py
"""

from __future__ import annotations

import gzip
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from healthd.collectors.rank_stacks import LocalRank, read_rank_stacks
from healthd.collectors.stack_sockets import RankProcess
from remediator.api.stack_handlers import _fold_bundles
from remediator.model.views_evidence import EvidenceEntry
from remediator.store.evidence_store import EvidenceStore
from remediator.store.journal import Journal
from vocabulary.messages.evidence_bundle import EvidenceBundle, RankStack, Series
from vocabulary.messages.wire import encode_message
from vocabulary.stacks.stack_tree import fold_stacks, render_stack_tree

RANKS, FRAMES, PER_NODE = 512, 60, 8
TIMES = 20
RANK = """
import sys, time
import torch.distributed
from healthd.trainer.stack_server import serve_stacks
began = time.perf_counter()
serve_stacks(sys.argv[1] + "/page")
print(time.perf_counter() - began, flush=True)
def inner(depth):
    return inner(depth - 1) if depth else time.sleep(3600)
inner(50)
"""


def measure_milliseconds(call: Callable[[], object], times: int = TIMES) -> str:
    """Median and worst."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        call()
        took.append((time.perf_counter() - began) * 1e3)
    return f"{statistics.median(took):.1f} (worst {max(took):.1f})"


def make_stack(rank: int, *, alike: bool) -> RankStack:
    """A stack of `FRAMES` frames; ranks that are not alike part at a frame of their own."""
    parts = FRAMES if alike else 10 + rank * 7 % (FRAMES - 10)
    frames = tuple(f"call_{n if n < parts else f'{n}_{rank}'} (model/layers/block_{n}.py:{n})" for n in range(FRAMES))
    return RankStack("train", 1, rank, 1000 + rank, 1.0, "torch", frames)


def measure_ranks(count: int) -> None:
    """Ask real processes that have imported torch."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        ranks = [
            subprocess.Popen([sys.executable, "-c", RANK, directory], stdout=subprocess.PIPE) for _ in range(count)
        ]
        opened = [float(each.stdout.readline()) * 1e3 for each in ranks if each.stdout]
        asked = [LocalRank("j", 0, n, RankProcess(each.pid, os.geteuid())) for n, each in enumerate(ranks)]
        print(f"open the server, ms: {statistics.median(opened):.1f} (worst {max(opened):.1f})")
        processes = [rank.process for rank in asked]

        def read() -> None:
            assert {stack.source for stack in read_rank_stacks(directory, asked, 0.0, processes)} == {"torch"}

        print(f"ask {count} ranks, ms, first: {measure_milliseconds(read, 1)}; then: {measure_milliseconds(read)}")
        for each in ranks:
            each.kill()
            each.wait()


def measure_tree(*, alike: bool) -> None:
    """Fold in memory, and from the bundles of all nodes as a page does."""
    stacks = [make_stack(rank, alike=alike) for rank in range(RANKS)]
    pairs = [(stack.rank, stack.frames) for stack in stacks]
    word = "alike but one" if alike else "each elsewhere"
    if alike:
        pairs[3] = (3, (*pairs[3][1][:40], "__next__ (torch/utils/data/dataloader.py:1)"))
    print(
        f"fold and render {RANKS} x {FRAMES}, {word}, ms: {measure_milliseconds(lambda: list(render_stack_tree(fold_stacks(pairs))))}"
    )
    with tempfile.TemporaryDirectory() as place:
        journal = Journal(f"sqlite:///{place}/r.db")
        journal.prepare()
        store = EvidenceStore(journal.engine)
        series = tuple(
            Series(f"s{n}", "W", "gpu:0", tuple((float(t), t * 1.5) for t in range(1000))) for n in range(40)
        )
        size = 0
        for node in range(RANKS // PER_NODE):
            own = tuple(stacks[node * PER_NODE : (node + 1) * PER_NODE])
            bundle = EvidenceBundle(
                version=1, node=f"n{node}", boot_id="b", taken_at=2.0, from_at=1.0, stacks=own, series=series
            )
            content = gzip.compress(encode_message(bundle))
            size += len(encode_message(bundle))
            store.keep(EvidenceEntry(f"o{node}", "i", f"n{node}", 1.0, len(content)), content)
        entries = store.of_incident("i")
        took = measure_milliseconds(lambda: _fold_bundles(store, "i", entries), 5)
        print(f"the tree from {len(entries)} bundles of {size / len(entries) / 1e6:.1f} MB, {word}, ms: {took}")
        journal.close()


if __name__ == "__main__":
    assert Path(sys.executable).exists()
    measure_ranks(PER_NODE)
    for alike in (True, False):
        measure_tree(alike=alike)
