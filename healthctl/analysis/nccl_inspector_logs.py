"""Reads the logs of NCCL's Inspector profiler plugin as step times: one JSON object per line and collective of a process.

The Inspector records how long each collective ran on each rank, waiting included. The rank that the others wait for
arrives last, so its collectives are the shortest: what a step takes less these is its own work. A step is one collective
of the communicator with most ranks, or several if there are many. Format: ext-profiler/inspector/README.md of NCCL.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from healthctl.analysis.event_table import Cells, Table
from healthctl.exit_codes import Exit, Failure

STEPS_MAX = 2000
BYTES_MAX = 1 << 30  # of one log: a million collectives take half of it
SUFFIXES = (".log", ".jsonl")


class _Header(msgspec.Struct):
    id: str
    rank: int
    n_ranks: int


class _Metadata(msgspec.Struct):
    dump_timestamp_us: float
    hostname: str = ""
    pid: int = 0


class _Collective(msgspec.Struct):
    coll_sn: int
    coll_exec_time_us: float


class _Record(msgspec.Struct):
    header: _Header
    metadata: _Metadata
    coll_perf: _Collective


class _Process(NamedTuple):
    """One rank's records in order; its rank in the communicator with most ranks, and its node."""

    rank: int
    node: str
    records: list[_Record]


def read_inspector_logs(directory: Path) -> Table:
    """Return columns step, rank, step_s, comm_s, node of all logs below `directory`.

    Raises:
        Failure: there is no log, or none holds a record; the message names the file and line of the first bad one.
    """
    files = sorted(path for path in directory.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    if not files:
        raise Failure(f"{directory}: no NCCL Inspector log (*.log, *.jsonl) below it", Exit.USAGE)
    read = [list(_read_records(path)) for path in files]
    world = max((each.header.n_ranks for records in read for each in records), default=0)
    ids = [each.header.id for records in read for each in records if each.header.n_ranks == world]
    if not ids:
        raise Failure(f"{directory}: the NCCL Inspector logs hold no collective", Exit.USAGE)
    widest = max(dict.fromkeys(ids), key=ids.count)  # the communicator of all ranks with most collectives
    processes = []
    for records in read:
        own = next((each for each in records if each.header.id == widest), None)
        if own is not None:
            processes.append(_Process(own.header.rank, own.metadata.hostname, records))
    return _build_table(directory, widest, processes)


def _read_records(path: Path) -> Iterator[_Record]:
    if path.stat().st_size > BYTES_MAX:
        raise Failure(f"{path}: longer than {BYTES_MAX >> 20} MiB; analyze a part of it", Exit.USAGE)
    decoder = msgspec.json.Decoder(_Record, strict=False)
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if number == len(lines):
                return  # the process was writing it
            raise Failure(f"{path}:{number}: not a record of the NCCL Inspector: {error}", Exit.USAGE) from None


def _build_table(directory: Path, widest: str, processes: list[_Process]) -> Table:
    numbers = [each.coll_perf.coll_sn for p in processes for each in p.records if each.header.id == widest]
    per_step = max(1, (max(numbers) - min(numbers)) // STEPS_MAX)
    spent: list[tuple[int, int, str, float]] = []  # step, rank, node, seconds in collectives
    began: dict[int, list[float]] = defaultdict(list)  # by step: when each process was first seen in it
    for process in processes:
        steps = _split_into_steps(process.records, widest, per_step)
        for step, records in steps.items():
            began[step].append(records[0].metadata.dump_timestamp_us / 1e6)
            spent.append((step, process.rank, process.node, _collective_seconds(records)))
    starts = {step: float(np.median(times)) for step, times in began.items()}
    ends = {step: starts[step + 1] for step in starts if step + 1 in starts}
    rows = [row for row in spent if row[0] in ends]
    columns: dict[str, Cells] = {
        "step": np.array([step for step, *_ in rows], dtype=np.float64),
        "rank": np.array([rank for _, rank, *_ in rows], dtype=np.float64),
        "step_s": np.array([ends[step] - starts[step] for step, *_ in rows]),
        "comm_s": np.array([seconds for *_, seconds in rows]),
        "node": [node for *_, node, _ in rows],
    }
    return Table(directory, columns, range(1, len(rows) + 1))


def _split_into_steps(records: list[_Record], widest: str, per_step: int) -> dict[int, list[_Record]]:
    """Return the records by step, each from its first collective of the widest communicator to that of the next step."""
    steps: dict[int, list[_Record]] = {}
    current: list[_Record] = []
    for record in records:
        if record.header.id == widest:
            current = steps.setdefault(record.coll_perf.coll_sn // per_step, [])
        current.append(record)
    return steps


def _collective_seconds(records: list[_Record]) -> float:
    """Return the seconds in collectives. The Inspector skips some between two dumps: their mean stands for these."""
    by_communicator: dict[str, list[_Collective]] = defaultdict(list)
    for record in records:
        by_communicator[record.header.id].append(record.coll_perf)
    total = 0.0
    for calls in by_communicator.values():
        numbers = [call.coll_sn for call in calls]
        mean_us = sum(call.coll_exec_time_us for call in calls) / len(calls)
        total += mean_us * (max(numbers) - min(numbers) + 1) / 1e6
    return total
