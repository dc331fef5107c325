from __future__ import annotations

import gzip
import json
import math
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import parquet

from healthctl.analysis.event_table import Table, read_table
from healthctl.analysis.timestamps import parse_iso_timestamp, parse_timestamps
from healthctl.exit_codes import Exit, Failure

T0 = 1767225600.0  # 2026-01-01T00:00:00Z


def table(tmp_path: Path, text: str, name: str = "events.csv") -> Table:
    path = tmp_path / name
    path.write_text(text)
    return read_table(path)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_csv_by_any_delimiter(tmp_path: Path, delimiter: str) -> None:
    rows = [["\ufeff Node ", "Job-ID", "step"], ["007", "a", "1"], ["gpu8", "", "2.5"], ["null", "b", ""]]
    read = table(tmp_path, "\n".join(delimiter.join(row) for row in rows))
    assert read.names == ("node", "job_id", "step")
    assert read.texts("node") == ["007", "gpu8", None]
    assert read.texts("job_id") == ["a", None, "b"]
    assert read.numbers("step")[:2].tolist() == [1, 2.5]
    assert math.isnan(read.numbers("step")[2])


def test_one_content_in_three_formats(tmp_path: Path) -> None:
    records = [{"node": "n1", "time": T0, "nodes": 4}, {"node": "n2", "time": T0 + 1, "nodes": 8}]
    lines = "\n".join(map(json.dumps, records))
    parquet.write_table(pa.Table.from_pylist(records), tmp_path / "e.parquet")
    (tmp_path / "e.csv.gz").write_bytes(gzip.compress(b"node,time,nodes\nn1,1767225600,4\nn2,1767225601,8\n"))
    found = [
        table(tmp_path, lines, "e.jsonl"),
        table(tmp_path, json.dumps(records), "e.json"),
        read_table(tmp_path / "e.parquet"),
        read_table(tmp_path / "e.csv.gz"),
    ]
    for each in found:
        assert each.texts("node") == ["n1", "n2"]
        assert each.times("time").tolist() == [T0, T0 + 1]
        assert each.numbers("nodes").tolist() == [4, 8]


def test_parquet_has_moments_durations_gaps_and_lists(tmp_path: Path) -> None:
    moment = datetime(2026, 1, 1, tzinfo=timezone.utc)
    parquet.write_table(
        pa.table(
            {
                "a": pa.array([moment, None], pa.timestamp("ns", tz="UTC")),
                "b": pa.array([1500, None], pa.duration("ms")),
                "c": pa.array([3, None], pa.int64()),
                "d": pa.array([["x", "y"], None]),
                "e": pa.array(["p", "p"]).dictionary_encode(),
                "f": pa.array([moment.date(), None], pa.date32()),
            }
        ),
        tmp_path / "t.pq",
    )
    read = read_table(tmp_path / "t.pq")
    assert read.times("a")[0] == read.times("f")[0] == T0
    assert read.numbers("b")[0] == 1.5
    assert read.numbers("c")[0] == 3
    assert math.isnan(read.numbers("c")[1])
    assert list(read.raw("d")[0]) == ["x", "y"]
    assert read.texts("e") == ["p", "p"]
    assert read.texts("c") == ["3", None]


def test_lines_of_json_may_differ_in_their_keys(tmp_path: Path) -> None:
    read = table(tmp_path, '{"node": 1}\n\n{"node": "b", "job": 7.0}\n', "e.ndjson")
    assert read.texts("node") == ["1", "b"]
    assert read.texts("job") == [None, "7"]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("e.csv", "node,time\na,1\nb\n", ":3: 1 cell where the first line has 2"),
        ("e.csv", "node,Node\na,b\n", "two columns are called 'node'"),
        ("e.jsonl", '{"a": 1}\nnope\n', ":2: not JSON"),
        ("e.jsonl", '{"a": 1}\n\n[1]\n', ":3: not an object"),
        ("e.json", "[1]", ":1: not an object"),
        ("e.parquet", "no parquet", "cannot be read as parquet"),
        ("e.doc", "x", "unknown file type"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, text: str, says: str) -> None:
    with pytest.raises(Failure) as failed:
        table(tmp_path, text, name)
    assert says in failed.value.message
    assert str(tmp_path / name) in failed.value.message
    assert failed.value.exit_code == Exit.USAGE


def test_a_bad_cell_is_named_by_line_and_column(tmp_path: Path) -> None:
    read = table(tmp_path, "node,step,time\na,1,2026-01-01\nb,many,yesterday\n")
    with pytest.raises(Failure, match=r"events.csv:3: column 'step': 'many' is not a number"):
        read.numbers("step")
    with pytest.raises(Failure, match=r"events.csv:3: column 'time': 'yesterday' is not a time"):
        read.times("time")
    with pytest.raises(Failure, match="no column rank, job; columns: node, step, time"):
        read.need("node", "rank", "job")


def test_no_file_and_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="no such file"):
        read_table(tmp_path / "gone.csv")
    for name in ("e.csv", "e.jsonl"):
        read = table(tmp_path, "", name)
        assert (read.rows, read.names) == (0, ())
    assert table(tmp_path, "node,time\n").rows == 0


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-01", "20260101", "2026-01-01T00:00:00Z", "2026-01-01 00:00:00", "2026-01-01T02:00:00+02:00",
        "2026-01-01T00:00:00.000000000Z", "2025-12-31T19:00:00-0500", "2026-01-01 00:00 UTC", "2026-01-01T00:00:00.0+00",
    ],
)  # fmt: skip
def test_moments_as_people_write_them(text: str) -> None:
    assert parse_timestamps([text]).tolist() == [T0]


@pytest.mark.parametrize("unit", [1, 1e3, 1e6, 1e9])
def test_epochs_in_any_unit(unit: float) -> None:
    assert parse_timestamps([T0 * unit, str(int(T0 * unit)), None])[:2].tolist() == [T0, T0]


@given(st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1), timezones=st.timezones()))  # noqa: DTZ001 - hypothesis wants naive bounds
def test_every_iso_moment_is_read_back(moment: datetime) -> None:
    assert parse_iso_timestamp(moment.isoformat()) == pytest.approx(moment.timestamp(), abs=1e-5)


@example(content=b"a,b\n1,2\n\xa0,3,4\n", suffix=".csv")
@given(st.binary(max_size=200), st.sampled_from([".csv", ".jsonl", ".json", ".parquet"]))
def test_no_bytes_crash_a_reader(tmp_path_factory: pytest.TempPathFactory, content: bytes, suffix: str) -> None:
    path = tmp_path_factory.mktemp("t") / f"f{suffix}"
    path.write_bytes(content)
    try:
        read = read_table(path)
    except Failure:
        return
    for name in read.names:
        assert len(read.texts(name)) == read.rows
