"""Converts a table of node events to the form that `remediator.detection.lemons.failure_record` expects: node ids, kinds, seconds."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from healthctl.analysis.event_table import Floats, Table, cell_number, cell_text
from healthctl.durations import parse_duration
from remediator.detection.lemons.failure_record import History, Ints, Kind
from vocabulary.text.slurm_hostlist import expand_hostlist

# The first of these names that is a column is used.
COLUMNS = {
    "node": ("node", "node_id", "node_name", "nodename", "host", "hostname", "machine", "instance"),
    "time": ("time", "timestamp", "ts", "event_time", "datetime", "date", "at"),
    "start": ("start", "start_time", "started", "started_at", "begin"),
    "end": ("end", "end_time", "ended", "ended_at", "finish", "stop"),
    "duration": ("duration", "duration_s", "duration_seconds"),
    "kind": ("kind", "event", "event_type", "event_kind", "type"),
    "job": ("job", "job_id", "jobid", "job_name"),
    "user": ("user", "user_id", "user_name", "username"),
    "code": ("code", "xid", "xid_code", "error_code"),
    "nodes": ("nodes", "num_nodes", "n_nodes", "nnodes", "node_count", "node_list", "nodelist", "job_nodes"),
    "gpus": ("gpus", "num_gpus", "n_gpus", "gpu_count"),
    "injected": ("injected",),
}
COHORTS = {
    "rack": ("rack", "rack_id"),
    "switch": ("switch", "leaf", "leaf_switch"),
    "batch": ("batch", "hardware_batch", "generation"),
    "driver": ("driver", "driver_version"),
}
KINDS = {
    Kind.FAILURE: "failure fail failed failures node_failure node_failed node_fail node_down job_failure job_failed "
    "job_fail single_node_failure multi_node_failure crash crashed hang fault outage",
    Kind.XID: "xid xids sxid xid_error gpu_xid gpu_error",
    Kind.REMOVED: "removed remove removal node_removed evicted eviction quarantined quarantine out_of_service",
    Kind.TEST_FAILED: "test_failed test_fail test_failure failed_test tests_failed check_failed health_check_failed "
    "diagnostic_failed diag_failed preflight_failed",
    Kind.TICKET: "ticket tickets repair_ticket ticket_opened ticket_created rma",
    Kind.EXCLUDED: "job_excluded excluded job_exclude exclude exclusion excluded_by_job user_excluded job_exclusion",
    Kind.REPAIRED: "repaired repair fixed replaced replacement swapped repair_done reimaged",
    Kind.CORDONED: "cordoned cordon drained drain draining maintenance planned_maintenance reserved down_planned",
    Kind.RETURNED: "returned return uncordoned uncordon undrained undrain resumed resume restored back_in_service",
    Kind.IN_SERVICE: "job jobs job_run run running in_service service exposure allocated allocation in_use busy",
}
KIND_OF = {name: kind for kind, names in KINDS.items() for name in names.split()}
MEMBERS_MAX = 100_000
_PARTS = re.compile(r"[,;|\s]+(?![^\[]*\])")
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True)
class FleetRecord:
    """`names` by node id, as first spelled; `gpus` by node, NaN if unknown; unknown kinds with their counts."""

    names: tuple[str, ...]
    history: History
    gpus: Floats
    unknown_kinds: dict[str, int]
    skipped: int


def build_fleet_record(table: Table, as_of: float) -> FleetRecord:
    """Convert the rows that began by `as_of`; later rows are ignored completely, including their node names.

    Raises:
        Failure: a column is missing, or a cell cannot be read.
    """
    columns = {name: table.first_of(*choices) for name, choices in (COLUMNS | COHORTS).items()}
    if table.names:  # a file without content names no node
        _require_columns(table, columns)
    start, end, known = _parse_row_times(table, columns)
    keep = known & (start <= as_of)
    injected = columns["injected"]
    if injected is not None:  # an injected fault is not evidence against a node
        keep &= np.array(
            [_normalize_kind(cell) not in {"true", "1", "yes"} for cell in table.texts(injected)], dtype=np.bool_
        )
    late = columns["time"] is not None and table.times(columns["time"]) > as_of
    rows = np.flatnonzero(keep & ~np.asarray(late))
    words = [_normalize_kind(cell) for cell in table.texts(columns["kind"])] if columns["kind"] else []
    at, node, named, spelt, sizes = _expand_rows_by_node(table, columns, rows)
    kind = np.array([KIND_OF.get(words[row], Kind.OTHER) for row in at.tolist()], dtype=np.int64)
    history = History(
        nodes=len(spelt),
        node=node,
        time=start[at],
        end=end[at],
        kind=kind,
        job=_number_texts(table, columns["job"], at),
        user=_number_texts(table, columns["user"], at),
        code=_parse_fault_codes(table, columns["code"], at),
        size=sizes,
        named=named,
        cohorts={
            name: _last_group_by_node(table, columns[name], at, node, len(spelt)) for name in COHORTS if columns[name]
        },
    )
    strange = Counter(words[row] or "(empty)" for row in np.unique(at).tolist() if words[row] not in KIND_OF)
    skipped = int(rows.size - np.unique(at).size) + int((~known).sum())
    return FleetRecord(tuple(spelt), history, _max_gpus_by_node(table, columns["gpus"], at, node, len(spelt)),
                       dict(strange.most_common()), skipped)  # fmt: skip


def _require_columns(table: Table, columns: dict[str, str | None]) -> None:
    if columns["node"] is None and columns["nodes"] is None:
        table.need("node")
    if columns["kind"] is None:
        table.need("kind")
    if columns["time"] is None and columns["start"] is None:
        table.need("time")


def _normalize_kind(cell: str | None) -> str:
    """Map spellings to one kind: `Test-Failed ` and `test failed` are equal."""
    return "_".join((cell or "").replace("-", " ").split()).lower()


def _parse_row_times(table: Table, columns: dict[str, str | None]) -> tuple[Floats, Floats, npt.NDArray[np.bool_]]:
    """(start, end, whether it has a start) of each row, in UTC seconds."""
    none = np.full(table.rows, np.nan)
    of = {name: table.times(column) if (column := columns[name]) else none for name in ("time", "start", "end")}
    lasts = _parse_durations(table, columns["duration"])
    start = np.where(np.isfinite(of["start"]), of["start"], of["time"])
    start = np.where(np.isfinite(start), start, of["end"] - lasts)
    end = np.where(np.isfinite(of["end"]), of["end"], start + lasts)
    return start, np.where(end >= start, end, np.nan), np.isfinite(start)


def _parse_durations(table: Table, column: str | None) -> Floats:
    """Seconds; `2h` is accepted."""
    found = np.full(table.rows, np.nan)
    if column is None:
        return found
    for row, cell in enumerate(table.raw(column)):
        text = cell_text(cell)
        if text is None:
            continue
        try:
            found[row] = float(text)
        except ValueError:
            try:
                found[row] = parse_duration(text)
            except ValueError:
                raise table.failure(row, column, "is not a duration: use seconds, or 90s, 2h, 3d") from None
    found[~(np.isfinite(found) & (found >= 0))] = np.nan
    return found


def _expand_rows_by_node(
    table: Table, columns: dict[str, str | None], rows: Ints
) -> tuple[Ints, Ints, npt.NDArray[np.bool_], list[str], Floats]:
    """For each (row, node in it): row, node id, whether the row names the node; then the names and the job's size.

    A list names each node; a number only says how many there were.
    """
    names = table.texts(columns["node"]) if columns["node"] else [None] * table.rows
    cells = table.raw(columns["nodes"]) if columns["nodes"] else [None] * table.rows
    ids: dict[str, int] = {}
    spelt: list[str] = []
    found: list[tuple[int, int, bool, float]] = []
    for row in rows.tolist():
        members, size = _parse_node_list(table, columns["nodes"], row, cells[row])
        own = names[row]
        told = dict.fromkeys([own, *members] if own is not None else members)
        folded = {name.casefold(): name for name in reversed(list(told))}
        for key, name in folded.items():
            if key not in ids:
                ids[key] = len(spelt)
                spelt.append(name)
            mine = own is not None and key == own.casefold() and len(folded) == 1
            found.append((row, ids[key], mine or not members, max(size, float(len(folded))) if members else size))
    at, node, named, sizes = zip(*found, strict=True) if found else ((), (), (), ())
    return (
        np.array(at, dtype=np.int64), np.array(node, dtype=np.int64), np.array(named, dtype=np.bool_), spelt,
        np.array(sizes, dtype=np.float64),
    )  # fmt: skip


def _parse_node_list(table: Table, column: str | None, row: int, cell: Any) -> tuple[list[str], float]:
    """(names, number): one of the two is set; the number is NaN if unknown."""
    text = cell_text(cell) if not isinstance(cell, (list, tuple)) else ""
    if text is None:
        return [], float("nan")
    try:
        number = cell_number(text or None)
        if np.isfinite(number):
            return [], number if number >= 1 else float("nan")
    except ValueError:
        pass
    if text.startswith("["):
        try:
            cell = json.loads(text.replace("'", '"'))
        except ValueError:
            raise table.failure(row, column or "nodes", "is neither a number nor a list of nodes") from None
    parts = cell if isinstance(cell, (list, tuple)) else _PARTS.split(text)
    members = [name for part in parts for name in expand_hostlist(str(part).strip())]
    return members[:MEMBERS_MAX], float("nan")


def _number_texts(table: Table, column: str | None, at: Ints) -> Ints:
    """Number distinct texts in order of first appearance; -1 for None."""
    found = np.full(at.size, -1, dtype=np.int64)
    if column is None:
        return found
    texts = table.texts(column)
    seen: dict[str, int] = {}
    for index, row in enumerate(at.tolist()):
        text = texts[row]
        if text is not None:
            found[index] = seen.setdefault(text.casefold(), len(seen))
    return found


def _parse_fault_codes(table: Table, column: str | None, at: Ints) -> Ints:
    """The number in `79` or `Xid 79`; other texts get numbers above all Xids."""
    found = np.full(at.size, -1, dtype=np.int64)
    if column is None:
        return found
    texts = table.texts(column)
    seen: dict[str, int] = {}
    for index, row in enumerate(at.tolist()):
        text = texts[row]
        if text is not None:
            digits = _DIGITS.search(text)
            number = int(digits[0]) if digits and len(digits[0]) < 6 else None
            found[index] = number if number is not None else seen.setdefault(text.casefold(), 10**6 + len(seen))
    return found


def _last_group_by_node(table: Table, column: str | None, at: Ints, node: Ints, nodes: int) -> Ints:
    """The last known group of each node."""
    groups = _number_texts(table, column, at)
    found = np.full(nodes, -1, dtype=np.int64)
    told = groups >= 0
    found[node[told]] = groups[told]
    return found


def _max_gpus_by_node(table: Table, column: str | None, at: Ints, node: Ints, nodes: int) -> Floats:
    found = np.full(nodes, np.nan)
    if column is not None:
        numbers = table.numbers(column)[at]
        told = np.isfinite(numbers) & (numbers > 0)
        np.fmax.at(found, node[told], numbers[told])
    return found
