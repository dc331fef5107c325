"""What PyTorch's versions, backends and habits make of a dump, and whether the verdict stays the same."""

from __future__ import annotations

import copy
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthctl.flight_recorder.collective_snapshot import build_snapshot
from healthctl.flight_recorder.dumps import read_directory
from remediator.detection.hangs.call_records import HangVerdict
from remediator.detection.hangs.hang_verdict import judge_hang

RECORDED = Path(__file__).parent / "recorded"
WORLD = "[0, 1, 2, 3]"

Dumps = dict[int, dict[str, Any]]


def call(
    number: int, state: str = "completed", *, group: str = "0", desc: str = "default_pg", **more: Any
) -> dict[str, Any]:
    return {
        "record_id": number, "pg_id": 0, "process_group": (group, desc), "collective_seq_id": number, "p2p_seq_id": 0,
        "op_id": number, "profiling_name": "nccl:all_reduce", "time_created_ns": 10**18 + number, "input_sizes": [[8, 2]],
        "input_dtypes": ["Float"], "output_sizes": [[8, 2]], "output_dtypes": ["Float"], "state": state,
        "time_discovered_started_ns": None, "time_discovered_completed_ns": None, "retired": state == "completed",
        "timeout_ms": 600000, "is_p2p": False,
    } | more  # fmt: skip


def dump(*calls: dict[str, Any], groups: dict[str, str] | None = None, **status: int) -> dict[str, Any]:
    entries = [each | {"record_id": place + 100 * (each["record_id"] >= 100)} for place, each in enumerate(calls)]
    named = groups or {"0": WORLD}
    return {
        "version": "2.10", "comm_lib_version": "2.27.5", "entries": entries,
        "pg_config": {name: {"name": name, "desc": "default_pg" if name == "0" else "", "ranks": ranks} for name, ranks in named.items()},
        "pg_status": {"0": {"last_enqueued_collective": -1, "last_started_collective": -1, "last_completed_collective": -1} | status},
    }  # fmt: skip


def late() -> Dumps:
    """Rank 2 has not made the third call."""
    return {
        rank: dump(call(1), call(2), *([] if rank == 2 else [call(3, "scheduled", retired=rank == 0)]))
        for rank in range(4)
    }


def judged(place: Path, dumps: Dumps, *, as_json: bool = False) -> HangVerdict:
    for rank, content in dumps.items():
        path = place / f"nccl_trace_rank_{rank}{'.json' if as_json else ''}"
        path.write_bytes(json.dumps(content).encode() if as_json else pickle.dumps(content, protocol=2))
    found = read_directory(place)
    assert not found.unreadable
    return judge_hang(build_snapshot(found.dumps))


def older(dumps: Dumps, version: str) -> Dumps:
    """What earlier versions wrote, by the fields they did not have yet."""
    lacking = {
        "2.1": (
            "output_dtypes",
            "input_dtypes",
            "is_p2p",
            "timeout_ms",
            "collective_seq_id",
            "p2p_seq_id",
            "process_group",
        ),
        "2.3": ("output_dtypes", "input_dtypes", "is_p2p", "timeout_ms"),
        "2.4": ("output_dtypes", "input_dtypes"),
        "2.9": (),
    }[version]
    for content in dumps.values():
        content["version"] = version
        del content["comm_lib_version"]
        for each in content["entries"]:
            each["seq_id"] = each["collective_seq_id"]
            for field in lacking:
                del each[field]
    return dumps


@pytest.mark.parametrize("version", ["2.1", "2.3", "2.4", "2.9"])
def test_every_version_is_read(tmp_path: Path, version: str) -> None:
    found = judged(tmp_path, older(late(), version))
    assert (found.kind, found.culprits, found.victims) == ("stuck_compute", (2,), (0, 1, 3))


def test_json_says_zero_where_the_pickle_says_nothing_and_its_counters_are_texts(tmp_path: Path) -> None:
    dumps = late()
    for content in dumps.values():
        for each in content["entries"]:
            each |= {
                "time_discovered_started_ns": 0,
                "time_discovered_completed_ns": 0,
                "process_group": list(each["process_group"]),
            }
        content["pg_status"]["0"] = {name: str(value) for name, value in content["pg_status"]["0"].items()}
    dumps[1].pop("entries")  # as it writes where a rank has none
    found = judged(tmp_path, dumps, as_json=True)
    assert (found.kind, found.culprits) == ("stuck_compute", (2,))


def test_retired_and_not_completed_has_timed_out_and_is_still_waited_for(tmp_path: Path) -> None:
    found = judged(tmp_path, late())
    assert found.culprits == (2,)
    assert any("rank 0 reported the timeout" in reason for reason in found.reasons)


def test_a_time_out_of_all_is_no_end(tmp_path: Path) -> None:
    dumps = {rank: dump(call(1), call(2, "scheduled", retired=True)) for rank in range(4)}
    assert judged(tmp_path, dumps).kind == "undetermined"


def test_parts_of_a_call_made_as_one_are_as_far_as_their_closing_entry(tmp_path: Path) -> None:
    none: dict[str, Any] = {"input_sizes": [], "output_sizes": [], "input_dtypes": [], "output_dtypes": []}
    part, end = call(2, "scheduled"), call(2, profiling_name="nccl:coalesced", **none)
    dumps = {rank: dump(call(1), part, part, end) for rank in range(4)}
    assert judged(tmp_path, copy.deepcopy(dumps)).kind == "none"
    dumps[1]["entries"] = dumps[1]["entries"][:1]
    for rank in (0, 2, 3):
        dumps[rank]["entries"][-1] |= {"state": "scheduled", "retired": False}
    assert judged(tmp_path, dumps).culprits == (1,)


def test_messages_made_as_one_name_the_end_that_is_not_there(tmp_path: Path) -> None:
    """Ends are told by their place in the group: 0 and 1 of the group are the ranks 1 and 3."""

    def messages(*names: str, state: str) -> list[dict[str, Any]]:
        p2p: dict[str, Any] = {"group": "5", "desc": "pp", "is_p2p": True, "p2p_seq_id": 1}
        parts = [call(0, "scheduled", profiling_name=f"nccl:{name}", **p2p) for name in names]
        return [*parts, call(0, state, profiling_name="nccl:coalesced", input_sizes=[], output_sizes=[], **p2p)]

    groups = {"0": WORLD, "5": "[1, 3]"}
    dumps = {
        0: dump(call(1), call(2, "scheduled")), 1: dump(call(1), *messages("send 0->1", "recv 0<-1", state="scheduled"), groups=groups),
        2: dump(call(1), call(2, "scheduled")), 3: dump(call(1), groups=groups),
    }  # fmt: skip
    found = judged(tmp_path, copy.deepcopy(dumps))
    assert (found.kind, found.culprits, found.victims) == ("stuck_compute", (3,), (0, 1, 2))
    dumps[3] = dump(call(1), *messages("recv 1<-0", "send 1->0", state="scheduled"), groups=groups)
    ended = {
        rank: dump(call(1), *messages(*names, state="completed"), groups=groups)
        for rank, names in ((1, ("send 0->1", "recv 0<-1")), (3, ("recv 1<-0", "send 1->0")))
    }
    assert judged(tmp_path, {0: dump(call(1)), 2: dump(call(1)), **ended}).kind == "none"
    assert judged(tmp_path, dumps).kind == "undetermined"


def test_one_group_under_another_name_on_each_rank(tmp_path: Path) -> None:
    dumps = {
        rank: dump(call(1, "scheduled", group=str(7 + rank), desc="tp"), groups={str(7 + rank): "[0, 1]"})
        for rank in (0, 1)
    }
    assert judged(tmp_path, copy.deepcopy(dumps)).kind == "undetermined"
    dumps[1]["entries"] = [call(0, "completed", group="8", desc="tp")]
    assert judged(tmp_path, dumps).culprits == (1,)


def test_one_name_for_several_groups(tmp_path: Path) -> None:
    pairs = {0: "[0, 1]", 1: "[0, 1]", 2: "[2, 3]", 3: "[2, 3]"}
    dumps = {rank: dump(call(1, group="9", desc="tp"), groups={"9": pairs[rank]}) for rank in range(4)}
    dumps[2]["entries"].append(call(2, "scheduled", group="9", desc="tp"))
    found = judged(tmp_path, dumps)
    assert (found.culprits, found.victims) == ((3,), (2,))


def test_the_members_are_known_where_only_others_have_used_the_group(tmp_path: Path) -> None:
    dumps = {rank: dump(call(1)) for rank in range(4)}
    dumps[0] = dump(call(1), call(1, "scheduled", group="4", desc="dp"), groups={"0": WORLD, "4": "[0, 3]"})
    found = judged(tmp_path, dumps)
    assert (found.culprits, found.victims) == ((3,), (0,))


def test_two_backends_under_one_name_count_apart(tmp_path: Path) -> None:
    barrier = call(1, "scheduled", retired=False, profiling_name="gloo:barrier")
    dumps = {rank: dump(call(1), call(2), *([] if rank == 3 else [barrier])) for rank in range(4)}
    assert judged(tmp_path, dumps).culprits == (3,)


def test_a_ring_that_lost_its_beginning(tmp_path: Path) -> None:
    dumps = {rank: dump(call(1000), call(1001, "scheduled")) for rank in range(3)}
    dumps[3] = dump(
        *[call(n, group="3", desc="tp") for n in range(400, 410)],
        groups={"0": WORLD, "3": "[3]"},
        last_enqueued_collective=1000,
    )
    assert judged(tmp_path, copy.deepcopy(dumps)).culprits == (3,)
    dumps[3]["pg_status"]["0"]["last_enqueued_collective"] = 1001
    assert judged(tmp_path, dumps).culprits == ()


@pytest.mark.parametrize(
    ("case", "kind", "culprits", "victims"),
    [
        ("timed_out", "stuck_compute", (2,), (0, 1, 3)),
        ("pair", "stuck_compute", (2,), (0, 1, 3)),
        ("order", "mismatched_collectives", (3,), (0, 1, 2)),
    ],
)
def test_recorded_by_pytorch_2_13_over_gloo(
    case: str, kind: str, culprits: tuple[int, ...], victims: tuple[int, ...]
) -> None:
    found = judge_hang(build_snapshot(read_directory(RECORDED / case).dumps))
    assert (found.kind, found.culprits, found.victims) == (kind, culprits, victims)


def test_a_recorded_rank_whose_dump_is_gone_is_dead(tmp_path: Path) -> None:
    shutil.copytree(RECORDED / "pair", tmp_path, dirs_exist_ok=True)
    (tmp_path / "rank_2").unlink()
    found = judge_hang(build_snapshot(read_directory(tmp_path).dumps))
    assert (found.kind, found.culprits, found.victims) == ("dead_rank", (2,), (0, 1, 3))


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 5),
    st.sampled_from(["", "0", "nccl:send 0->9", "nccl:coalesced"]),
    st.just([[1], 2, "x"]),
)


@given(st.lists(st.dictionaries(st.sampled_from(sorted(call(1))), VALUES, max_size=4), max_size=5), st.integers(0, 3))
def test_strange_values_are_refused_in_a_line_or_judged(
    tmp_path_factory: pytest.TempPathFactory, changes: list[dict[str, Any]], rank: int
) -> None:
    place = tmp_path_factory.mktemp("strange")
    dumps = late()
    dumps[rank]["entries"] += [call(4) | change for change in changes]
    for each, content in dumps.items():
        (place / f"rank_{each}").write_bytes(pickle.dumps(content))
    found = read_directory(place)
    assert set(found.dumps) | set(found.unreadable) == {0, 1, 2, 3}
    assert judge_hang(build_snapshot(found.dumps)).reasons


@pytest.mark.parametrize(
    "ranks",
    ["[1e999]", "[999999999]", "[" * 100_000, [float("inf")], [float("nan")], [10**30], [-5], [1 << 20], {"a": 1}, 7],
    ids=lambda ranks: repr(ranks)[:20],
)
def test_members_that_no_job_has_are_members_that_are_not_told(tmp_path: Path, ranks: object) -> None:
    dumps = late()
    dumps[0]["pg_config"]["0"]["ranks"] = ranks
    for each, content in dumps.items():
        (tmp_path / f"rank_{each}").write_bytes(pickle.dumps(content))
    (tmp_path / "rank_20261121143000").write_bytes(b"")
    found = read_directory(tmp_path)
    assert found.unreadable[20261121143000].endswith("implausible rank 20261121143000")
    assert judge_hang(build_snapshot(found.dumps)).culprits == (2,)


def _as_tuples(content: dict[str, Any]) -> None:
    for each in content["entries"]:
        for field in ("input_sizes", "output_sizes", "input_dtypes", "output_dtypes"):
            each[field] = tuple(tuple(one) if isinstance(one, list) else one for one in each[field])


def _groups_by_number(content: dict[str, Any]) -> None:
    content["pg_config"], content["pg_status"] = {0: content["pg_config"]["0"]}, {0: content["pg_status"]["0"]}


def _nothing_counted(content: dict[str, Any]) -> None:
    content["pg_status"]["0"] = dict.fromkeys(content["pg_status"]["0"])


def _no_stacks(content: dict[str, Any]) -> None:
    for each in content["entries"]:
        each |= {"frames": None, "time_created_ns": 1.5e18}
    content["version"] = 2.1


@pytest.mark.parametrize("form", [_as_tuples, _groups_by_number, _nothing_counted, _no_stacks])
def test_what_other_writers_make_of_the_format_is_read(tmp_path: Path, form: Callable[[dict[str, Any]], None]) -> None:
    dumps = late()
    dumps[2]["entries"].append(call(3, "scheduled", input_sizes=[[9, 2]], output_sizes=[[9, 2]]))
    for content in dumps.values():
        form(content)
    found = judged(tmp_path, dumps)
    assert (found.kind, found.culprits) == ("mismatched_collectives", (2,))


@pytest.mark.parametrize("entered", [0, 2])
def test_a_rank_that_left_nothing_but_its_counters_is_not_dead(tmp_path: Path, entered: int) -> None:
    dumps = late()
    dumps[2] |= {"entries": [], "pg_status": {"0": {"last_enqueued_collective": entered}}}
    found = judged(tmp_path, dumps)
    assert (found.kind, found.culprits) == ("stuck_compute", (2,))


@pytest.mark.parametrize("name", ["rank_{}.txt", "rank-{:03}.fr", "{}"])
def test_a_rank_is_the_number_at_the_end_and_other_files_are_passed_over(tmp_path: Path, name: str) -> None:
    dumps = late()
    del dumps[3]
    for rank, content in dumps.items():
        (tmp_path / name.format(rank)).write_bytes(pickle.dumps(content))
    for stray in ("job_48213", "stacks_rank_1.log", "stacks_rank_3.log", "truth.json"):
        (tmp_path / stray).write_text("{}")
    found = read_directory(tmp_path)
    assert (set(found.dumps), found.unreadable) == ({0, 1, 2}, {})
