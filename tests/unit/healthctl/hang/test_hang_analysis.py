from __future__ import annotations

import json
import os
import pickle
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from healthctl.flight_recorder.collective_snapshot import build_snapshot
from healthctl.flight_recorder.dumps import Dump, DumpError, read_directory, read_dump
from remediator.detection.hangs.call_records import HangVerdict
from remediator.detection.hangs.hang_verdict import judge_hang

Run = Callable[..., Result]


def entry(
    number: int, state: str = "completed", group: str = "0", operation: str = "all_reduce", **more: Any
) -> dict[str, Any]:
    return {
        "frames": [
            {"name": "all_reduce", "filename": "/x/torch/distributed/c10d.py", "line": 1},
            {"name": "train", "filename": "/job/train.py", "line": 30 + number},
        ],
        "record_id": number, "pg_id": 0, "process_group": (group, "default_pg" if group == "0" else "mesh"),
        "collective_seq_id": number, "profiling_name": f"nccl:{operation}", "input_sizes": [[8]], "input_dtypes": ["Float"],
        "state": state, "retired": state == "completed", "is_p2p": False, "time_discovered_started_ns": None,
    } | more  # fmt: skip


def dump(*entries: dict[str, Any], groups: dict[str, list[int]] | None = None) -> dict[str, Any]:
    config = {name: {"name": name, "desc": "mesh", "ranks": str(ranks)} for name, ranks in (groups or {}).items()}
    return {"version": "2.10", "pg_config": config, "pg_status": {"0": {}}, "entries": list(entries)}


def write(place: Path, dumps: dict[int, dict[str, Any]]) -> Path:
    for rank, content in dumps.items():
        (place / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(content, protocol=2))
    return place


def verdict_of(place: Path, dumps: dict[int, dict[str, Any]], world: int = 0) -> HangVerdict:
    return judge_hang(build_snapshot(read_directory(write(place, dumps)).dumps, world))


def blame_of(place: Path, dumps: dict[int, dict[str, Any]], world: int = 0) -> tuple[str, tuple[int, ...]]:
    verdict = verdict_of(place, dumps, world)
    return verdict.kind, verdict.culprits


def test_the_rank_that_did_not_arrive_is_named_with_where_it_was_last(healthctl: Run, tmp_path: Path) -> None:
    write(
        tmp_path, {0: dump(entry(1), entry(2, "started")), 1: dump(entry(1)), 2: dump(entry(1), entry(2, "scheduled"))}
    )
    done = healthctl("analyze", "hang", str(tmp_path))
    assert done.exit_code == 1
    assert done.stdout.splitlines() == [
        "check rank 1: the others wait for it, and it waits for no other rank",
        "    group 0 (default_pg), all_reduce number 2: rank 1 missing, 2 waiting",
        "    rank 1 was last seen in nccl:all_reduce number 1, called from /job/train.py:31 in train",
        "only waiting: ranks 0, 2",
    ]
    found = json.loads(healthctl("analyze", "hang", str(tmp_path), "-o", "json").stdout)
    assert found == {
        "kind": "stuck_compute",
        "culprits": [1],
        "victims": [0, 2],
        "collective": "all_reduce",
        "group": "0 (default_pg)",
        "reasons": [line.strip() for line in done.stdout.splitlines()[1:3]],
    }


def test_a_job_that_moves_is_left_alone(healthctl: Run, tmp_path: Path) -> None:
    write(tmp_path, {0: dump(entry(1)), 1: dump(entry(1))})
    done = healthctl("analyze", "hang", str(tmp_path))
    assert (done.exit_code, done.stdout) == (0, "no stuck call in the records of 2 ranks\n")
    found = json.loads(healthctl("analyze", "hang", str(tmp_path), "-o", "json").stdout)
    assert (found["kind"], found["culprits"], found["victims"], found["collective"], found["group"]) == (
        "none", [], [], None, None,
    )  # fmt: skip


def test_ranks_without_a_dump_are_missed_once_the_world_is_known(tmp_path: Path) -> None:
    dumps = {0: dump(entry(1, "started")), 1: dump(entry(1, "started"))}
    assert verdict_of(tmp_path, dumps).silent == ()
    found = verdict_of(tmp_path, dumps, world=4)
    assert (found.kind, found.silent, found.culprits, found.victims) == ("dead_rank", (2, 3), (2, 3), (0, 1))


def test_a_gap_among_the_ranks_is_a_rank_without_a_dump(tmp_path: Path) -> None:
    dumps = {0: dump(entry(1, "started")), 2: dump(entry(1, "started"))}
    assert blame_of(tmp_path, dumps) == ("dead_rank", (1,))


def test_a_dump_that_cannot_be_read_does_not_spare_the_others(healthctl: Run, tmp_path: Path) -> None:
    write(tmp_path, {0: dump(entry(1), entry(2, "started")), 1: dump(entry(1), entry(2, "started"))})
    (tmp_path / "nccl_trace_rank_2").write_bytes(pickle.dumps(dump(entry(1)))[:-20])
    found = json.loads(healthctl("analyze", "hang", str(tmp_path), "-o", "json").stdout)
    assert (found["kind"], found["culprits"]) == ("dead_rank", [2])
    assert "nccl_trace_rank_2: not a flight recorder dump" in found["reasons"][-1]


def test_json_is_read_too_and_a_pickle_goes_before_it(tmp_path: Path) -> None:
    (tmp_path / "trace_0.json").write_text(json.dumps(dump(entry(1, "started"))))
    (tmp_path / "notes.txt").write_text("not a dump")
    assert len(read_directory(tmp_path).dumps[0].calls) == 1
    write(tmp_path, {0: dump(entry(1), entry(2))})
    assert len(read_directory(tmp_path).dumps[0].calls) == 2


class Trap:
    def __init__(self, marker: str) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.marker,)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_would_run_something_runs_nothing(tmp_path: Path, protocol: int) -> None:
    marker = tmp_path / "it-ran"
    path = tmp_path / "trace_0"
    path.write_bytes(pickle.dumps({"entries": [], "x": Trap(str(marker))}, protocol=protocol))
    with pytest.raises(DumpError, match=r"trace_0: not a flight recorder dump: it imports"):
        read_dump(path)
    assert not marker.exists()


def test_a_pickle_that_asks_for_all_memory_gets_none_and_the_limit_is_lifted_again(tmp_path: Path) -> None:
    path = tmp_path / "trace_0"
    path.write_bytes(b"\x80\x02N\x72\xff\xff\xff\x7f.")  # keeps None at place 2**31 - 1 of its memory
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(DumpError, match="trace_0"):
        read_dump(path)
    assert resource.getrlimit(resource.RLIMIT_AS) == before


@given(st.binary(max_size=400))
def test_any_bytes_are_a_dump_or_a_clear_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "trace_0"
    path.write_bytes(content)
    try:
        assert isinstance(read_dump(path), Dump)
    except DumpError as error:
        assert "trace_0" in str(error)  # noqa: PT017 - either way out is right


def test_what_is_wrong_is_said_in_a_line(healthctl: Run, tmp_path: Path) -> None:
    nothing = healthctl("analyze", "hang", str(tmp_path))
    assert (nothing.exit_code, "TORCH_FR_BUFFER_SIZE" in nothing.stderr) == (2, True)
    write(tmp_path, {0: dump()})
    (tmp_path / "other_0").write_bytes(pickle.dumps(dump()))
    twice = healthctl("analyze", "hang", str(tmp_path))
    assert (twice.exit_code, "both belong to rank 0" in twice.stderr) == (3, True)
    assert healthctl("analyze", "hang", str(tmp_path / "none")).exit_code == 2


def test_a_number_that_is_no_rank_makes_no_job_of_that_size(healthctl: Run, tmp_path: Path) -> None:
    write(tmp_path, {0: dump(entry(1, "started")), 1: dump(entry(1, "started"))})
    (tmp_path / "nccl_trace_rank_20261121143000").write_bytes(b"")
    done = healthctl("analyze", "hang", str(tmp_path), "-o", "json")
    assert (done.exit_code, json.loads(done.stdout)["culprits"]) == (1, []), done.stderr
