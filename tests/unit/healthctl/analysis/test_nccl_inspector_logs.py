"""Stragglers from the logs of NCCL's Inspector: no code in the trainer, only its collectives' times on each rank."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Run = Callable[..., Result]
RANKS, STEPS, PER_NODE = 16, 120, 4
TENSOR = 4  # ranks of a tensor-parallel communicator


def write_logs(place: Path, slow: dict[int, float], *, skipped: float = 0.0, since: int = 40) -> Path:
    """Simulate a job: two tensor-parallel collectives and one of all ranks per step; every rank's log."""
    rng = random.Random(7)  # noqa: S311 - repeatable
    lines: dict[int, list[str]] = {rank: [] for rank in range(RANKS)}
    clock = [1_752_867_229.0] * RANKS
    for step in range(STEPS):
        for part in range(2):
            for rank in range(RANKS):
                clock[rank] += 0.2 * (slow.get(rank, 1.0) if step >= since else 1.0) * rng.gauss(1.0, 0.005)
            groups = [range(i, i + TENSOR) for i in range(0, RANKS, TENSOR)] if part == 0 else [range(RANKS)]
            for group in groups:
                ends = max(clock[rank] for rank in group) + 0.01
                for rank in group:
                    key = f"0x{group.start:x}{len(group):x}"
                    if rng.random() >= skipped or part == 1:
                        lines[rank].append(
                            record(rank, rank - group.start, len(group), key, step, ends - clock[rank], ends)
                        )
                    clock[rank] = ends
    for rank, text in lines.items():
        (place / f"node{rank // PER_NODE}-pid{1000 + rank}.log").write_text("\n".join(text) + "\n")
    return place


def record(process: int, rank: int, ranks: int, key: str, number: int, seconds: float, at: float) -> str:
    return json.dumps(
        {
            "header": {"id": key, "rank": rank, "n_ranks": ranks, "nnodes": 4},
            "metadata": {
                "inspector_output_format_version": "v4.0", "dump_timestamp_us": int(1e6 * at),
                "hostname": f"node{process // PER_NODE}", "pid": 1000 + process,
            },
            "coll_perf": {
                "coll": "AllReduce", "coll_sn": number, "coll_msg_size_bytes": 1 << 20,
                "coll_exec_time_us": int(1e6 * seconds), "coll_algobw_gbs": 1.0, "coll_busbw_gbs": 1.0,
            },
        }
    )  # fmt: skip


def analyze(healthctl: Run, place: Path) -> tuple[int, dict[str, Any]]:
    done = healthctl("analyze", "stragglers", str(place), "-o", "json")
    return done.exit_code, json.loads(done.stdout)["jobs"][0]


@pytest.mark.parametrize("skipped", [0.0, 0.3])
def test_a_slow_rank_shows_in_how_short_its_collectives_are(healthctl: Run, tmp_path: Path, skipped: float) -> None:
    code, job = analyze(healthctl, write_logs(tmp_path, {9: 1.2}, skipped=skipped))
    assert code == 1
    (culprit,) = job["culprits"]
    assert (culprit["rank"], culprit["node"]) == (9, "node2")
    assert 0.1 < culprit["slowdown"] < 0.3


def test_a_healthy_job_names_nobody(healthctl: Run, tmp_path: Path) -> None:
    code, job = analyze(healthctl, write_logs(tmp_path, {}))
    assert (code, job["culprits"]) == (0, [])


def test_a_line_that_is_cut_off_at_the_end_is_left_out(healthctl: Run, tmp_path: Path) -> None:
    write_logs(tmp_path, {})
    with (tmp_path / "node0-pid1000.log").open("a") as log:
        log.write('{"header": {"id": "0x')
    assert analyze(healthctl, tmp_path)[0] == 0


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "no NCCL Inspector log"),
        ("", "hold no collective"),
        ("{}\n{}\n", "a.log:1: not a record of the NCCL Inspector"),
        ("NCCL version 2.28\nx\n", "a.log:1: not a record"),
        ('{"header": 3}\nx\n', "a.log:1: not a record"),
    ],
)
def test_what_is_no_log_is_said_in_a_line(healthctl: Run, tmp_path: Path, content: str | None, expected: str) -> None:
    if content is not None:
        (tmp_path / "a.log").write_text(content)
    done = healthctl("analyze", "stragglers", str(tmp_path))
    assert done.exit_code == 2
    assert expected in done.stderr
