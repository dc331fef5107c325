"""A rank's flight recorder dump: a pickle from a job's directory, read with nothing to import."""

from __future__ import annotations

import pickle
from pathlib import Path

from healthctl.flight_recorder.dumps import DumpError, read_dump
from tests.fuzz.target import Target, scratch

PLACE = scratch()


def judge(data: bytes) -> None:
    """A dump or its own error, and nothing runs: a canary that any import would trip stays untouched."""
    file = PLACE / "rank_0"
    file.write_bytes(data)
    try:
        dump = read_dump(file)
    except DumpError:
        return
    for entry in dump.calls:
        _ = entry.number, entry.group, entry.called
    for group in dump.groups.values():
        _ = group.members
    if set(PLACE.iterdir()) != {file}:
        raise AssertionError("reading a dump wrote something")


class _Touches:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (str(PLACE / "canary"),)  # type: ignore[return-value]  # whatever a hostile one does


_ENTRY = {
    "process_group": ("0", "default_pg"), "collective_seq_id": 3, "profiling_name": "nccl:all_reduce", "record_id": 1,
    "state": "started", "retired": False, "input_sizes": [[1024]], "frames": [{"name": "f", "filename": "a.py", "line": 3}],
}  # fmt: skip
_DUMP = {
    "version": "2.10",
    "entries": [_ENTRY],
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {"0": {"last_enqueued_collective": 3, "last_started_collective": 3, "last_completed_collective": 2}},
}
TARGET = Target(
    judge,
    (
        pickle.dumps(_DUMP, protocol=2),
        pickle.dumps(_DUMP, protocol=4),
        pickle.dumps({"entries": _Touches()}, protocol=4),
        b'{"entries":[{"process_group":["0","d"],"seq_id":1}],"pg_config":{}}',
        b"\x80\x04}r\xff\xff\xff\x0f.",  # ten bytes that asked for four gigabytes, to remember one thing
        b"(lp0\nh0\na.",  # a list that holds itself
        b"cposix\nsystem\n(S'true'\ntR.",
    ),
)
