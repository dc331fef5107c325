"""A GPU that fails inside a collective: the rank that did not come out of a call that others came out of."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from bench.collective_timeline import Case, make_timeline
from bench.detect_gpu_errors import judge_timeline, list_cases
from healthctl.flight_recorder.collective_snapshot import build_snapshot
from healthctl.flight_recorder.dumps import Dump, Entry, Group, Progress, read_directory
from remediator.detection.hangs.call_records import HangVerdict
from remediator.detection.hangs.hang_verdict import judge_hang

SEEDS = (0,)  # the bench has more
TENSOR, EXPERT = "TENSOR_MODEL_PARALLEL_GROUP", "EXPERT_MODEL_PARALLEL_GROUP"


def call(number: int, state: str, group: str, desc: str, **more: object) -> Entry:
    fields = {"process_group": [group, desc], "collective_seq_id": number, "state": state, "profiling_name": "nccl:x"}
    return Entry(**(fields | {"retired": state == "completed", "pg_id": int(group)} | more))  # type: ignore[arg-type] - fields by name


def judge(dumps: Mapping[int, list[Entry]], groups: Mapping[str, list[int]], **more: int) -> HangVerdict:
    config = {name: Group(name, "g", str(members)) for name, members in groups.items()}
    made = {
        rank: Dump([_number(each, place) for place, each in enumerate(calls)], config, **more)
        for rank, calls in dumps.items()
    }
    return judge_hang(build_snapshot(made, 1 + max(max(members) for members in groups.values())))


def _number(entry: Entry, place: int) -> Entry:
    return msgspec.structs.replace(entry, record_id=place)


@pytest.mark.parametrize("case", list(list_cases()), ids=lambda case: "-".join(str(part) for part in case))
def test_the_culprits_of_simulated_jobs_are_named_and_no_one_else(case: Case) -> None:
    found = [judge_timeline(make_timeline(case, seed)) for seed in SEEDS]
    assert [false for _, false in found] == [False] * len(SEEDS)
    assert all(right for right, _ in found)


@pytest.mark.parametrize("active_only", [False, True])
def test_two_failed_gpus_of_one_exchange_are_named_by_their_own_groups(*, active_only: bool) -> None:
    """Sixteen ranks, tensor groups of four and an expert group of eight, as in published dumps of injected GPU errors."""
    groups = {"37": [8, 9, 10, 11], "38": [12, 13, 14, 15], "72": list(range(8, 16))}
    dumps = {}
    for rank in range(8, 16):
        tensor, failed = "37" if rank < 12 else "38", rank in (9, 14)
        ended = [call(n, "scheduled" if failed else "completed", tensor, TENSOR) for n in (5, 6)]
        ended += [call(n, "scheduled" if failed else "completed", "72", EXPERT) for n in (3, 4)]
        later = (
            []
            if failed
            else [*(call(n, "scheduled", tensor, TENSOR) for n in (7, 8)), call(5, "scheduled", "72", EXPERT)]
        )
        dumps[rank] = [each for each in (*ended, *later) if not (active_only and each.state == "completed")]
    found = judge(dumps, groups)
    assert (found.kind, found.culprits) == ("unfinished_call", (9, 14))


def test_a_receiver_that_is_still_in_a_broadcast_shows_nothing() -> None:
    broadcast = {"profiling_name": "nccl:broadcast"}
    first = [call(1, "completed", "0", "g"), call(2, "completed", "0", "g", **broadcast)]
    rest = [call(1, "completed", "0", "g"), call(2, "started", "0", "g", **broadcast)]
    found = judge({0: first, 1: rest, 2: rest}, {"0": [0, 1, 2]})
    assert found.kind != "unfinished_call"


def test_a_record_older_than_the_calls_of_others_accuses_nobody() -> None:
    old = [call(1, "completed", "0", "g"), call(2, "started", "0", "g")]
    new = [call(n, "completed", "0", "g") for n in range(1, 6)] + [call(6, "started", "0", "g")]
    assert judge({0: old, 1: new, 2: new, 3: new}, {"0": [0, 1, 2, 3]}).kind != "unfinished_call"


def test_one_rank_that_claims_to_have_ended_every_call_accuses_nobody() -> None:
    calls = [call(1, "completed", "0", "g"), call(2, "started", "0", "g"), call(3, "scheduled", "0", "g")]
    liar = Dump([call(2, "scheduled", "0", "g")], None, {"0": Progress(10**9, 10**9, 10**9)})
    config = {"0": Group("0", "g", "[0, 1, 2, 3]")}
    dumps = {rank: Dump([_number(each, place) for place, each in enumerate(calls)], config) for rank in range(3)}
    assert judge_hang(build_snapshot(dumps | {3: liar}, 4)).culprits == ()


def test_dumps_of_a_job_that_made_calls_until_then_name_nobody() -> None:
    now = 10**18
    behind = [
        call(1, "completed", "0", "g", time_created_ns=now),
        call(2, "started", "0", "g", time_created_ns=now + 10**9),
    ]
    ahead = [*behind[:1], call(2, "completed", "0", "g"), call(3, "started", "0", "g", time_created_ns=now + 10**9)]
    dumps = {0: behind, 1: ahead, 2: ahead}
    moving = judge(dumps, {"0": [0, 1, 2]}, written_ns=now + 2 * 10**9)
    assert (moving.kind, moving.culprits) == ("none", ())
    assert "may be moving" in moving.reasons[0]
    assert judge(dumps, {"0": [0, 1, 2]}, written_ns=now + 60 * 10**9).kind != "none"


def test_the_sender_of_a_received_message_is_named() -> None:
    p2p: dict[str, object] = {"is_p2p": True, "p2p_seq_id": 1, "input_sizes": [[8]], "output_sizes": [[8]]}
    send = call(0, "scheduled", "1", "pp", profiling_name="nccl:send 0->1", **p2p)
    received = call(0, "completed", "1", "pp", profiling_name="nccl:recv 1<-0", **p2p)
    waits = call(1, "scheduled", "0", "g")
    found = judge({0: [send], 1: [received, waits]}, {"0": [0, 1], "1": [0, 1]})
    assert (found.kind, found.culprits) == ("unfinished_call", (0,))


def test_without_timing_a_gpu_in_its_own_kernel_is_told_with_the_advice_to_record_it() -> None:
    found = judge({rank: [call(1, "scheduled", "0", "g")] for rank in range(4)}, {"0": [0, 1, 2, 3]})
    assert (found.kind, found.culprits) == ("undetermined", ())
    assert found.root is not None
    assert any("TORCH_NCCL_ENABLE_TIMING=1" in reason for reason in found.reasons)


@pytest.mark.parametrize(
    "case", [Case("gpu error", True, True), Case("gpu error", False, False), Case("moving", True, True)]
)
@pytest.mark.parametrize("as_json", [False, True])
def test_files_of_these_jobs_lead_to_the_same_verdict(tmp_path: Path, case: Case, *, as_json: bool) -> None:
    job = make_timeline(case, 0)
    for rank, dump in job.dumps.items():
        plain = msgspec.to_builtins(dump)
        path = tmp_path / f"trace_{rank}{'.json' if as_json else ''}"
        path.write_bytes(json.dumps(plain).encode() if as_json else pickle.dumps(plain, protocol=2))
        os.utime(path, ns=(dump.written_ns, dump.written_ns))
    from_files = judge_hang(build_snapshot(read_directory(tmp_path).dumps, job.world))
    assert from_files == judge_hang(build_snapshot(job.dumps, job.world))
