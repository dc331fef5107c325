"""Readers for the three kinds of table files: columns as (name, cells), and the line number of each row for errors."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy.typing as npt

from healthctl.analysis.csv_column import CsvColumn
from vocabulary.text.plurals import format_count

Column: TypeAlias = "tuple[str, Sequence[Any] | npt.NDArray[Any]]"
Columns: TypeAlias = tuple[list[Column], Sequence[int]]


class TableFileError(Exception):
    """Why a file cannot be read; starts with ':LINE: ' or ': '."""


def read_csv(path: Path) -> Columns:
    """Read a file separated by comma, semicolon or tab; every cell is text, since `007` may be a name."""
    import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
    from pyarrow import csv as arrow_csv

    _must_be_text(path)  # invalid UTF-8 would raise inside pyarrow's callback, where the error is lost
    with pa.input_stream(str(path), compression="detect") as stream:
        head = stream.read(65536)
    first = head.decode("utf-8-sig", errors="replace").lstrip("\r\n").partition("\n")[0].strip("\r")
    if not first.strip():
        return [], ()
    delimiter = max(",;\t", key=first.count)
    bad: list[tuple[int | None, int, int]] = []

    def remember(row: Any) -> str:
        bad.append((row.number, row.actual_columns, row.expected_columns))
        return "skip"

    parse = arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True, invalid_row_handler=remember)
    # With threads, pyarrow does not report the number of a bad row.
    read = arrow_csv.ReadOptions(use_threads=False)
    kinds = arrow_csv.ConvertOptions(
        column_types={name: pa.string() for name in _read_csv_header(path, read, parse)},
        strings_can_be_null=False,
    )
    table = arrow_csv.read_csv(_open_compressed(path), read_options=read, parse_options=parse, convert_options=kinds)
    if bad:
        number, actual, expected = bad[0]
        raise TableFileError(f":{number or '?'}: {format_count(actual, 'cell')} where the first line has {expected}")
    columns: list[Column] = [
        (name, CsvColumn(table.column(at).combine_chunks())) for at, name in enumerate(table.column_names)
    ]
    return columns, range(2, table.num_rows + 2)


def _must_be_text(path: Path) -> None:
    decoder, line = codecs.getincrementaldecoder("utf-8")(), 1
    with _open_compressed(path) as stream:
        while block := stream.read(1 << 20):
            try:
                line += decoder.decode(block).count("\n")
            except UnicodeDecodeError as error:
                line += error.object[: error.start].count(b"\n")
                raise TableFileError(f":{line}: {error.object[error.start]:#04x} is not UTF-8 text") from None


def _read_csv_header(path: Path, read: Any, parse: Any) -> list[str]:
    from pyarrow import csv as arrow_csv

    with arrow_csv.open_csv(_open_compressed(path), read_options=read, parse_options=parse) as reader:
        return list(reader.schema.names)


def _open_compressed(path: Path) -> Any:
    import pyarrow as pa

    return pa.input_stream(str(path), compression="detect")


def read_json_lines(path: Path) -> Columns:
    """Read one object per line, or one array of objects; a missing key becomes None."""
    import pyarrow as pa

    with pa.input_stream(str(path), compression="detect") as stream:
        content: bytes = stream.read()
    content = content.removeprefix(b"\xef\xbb\xbf")
    records: list[tuple[int, Any]] = []
    if content.lstrip().startswith(b"["):
        try:
            records = list(enumerate(msgspec.json.decode(content), 1))
        except msgspec.DecodeError as error:
            raise TableFileError(f": not JSON: {error}") from None
    else:
        decoder = msgspec.json.Decoder()
        for number, line in enumerate(content.split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                records.append((number, decoder.decode(line)))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise TableFileError(f":{number}: not JSON: {error}") from None
    names: dict[str, None] = {}
    for number, record in records:
        if not isinstance(record, dict):
            raise TableFileError(f":{number}: not an object but {str(record)[:40]!r}")
        names.update(dict.fromkeys(record))
    columns: list[Column] = [(name, [record.get(name) for _, record in records]) for name in names]
    return columns, [number for number, _ in records]


def read_parquet(path: Path) -> Columns:
    """Read Parquet. Timestamps become datetimes or seconds, dictionaries their values; numbers without nulls stay arrays."""
    import pyarrow as pa
    from pyarrow import parquet

    table = parquet.ParquetFile(path).read()
    columns: list[Column] = []
    for at, name in enumerate(table.column_names):
        column = table.column(at)
        kind = column.type
        if pa.types.is_timestamp(kind):
            # A datetime holds microseconds at most, which is precise enough here.
            column = column.cast(pa.timestamp("us", tz=kind.tz), safe=False)
        elif pa.types.is_duration(kind):
            seconds = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}[kind.unit]
            whole = column.cast(pa.int64()).to_pylist()
            columns.append((name, [None if each is None else each * seconds for each in whole]))
            continue
        if column.null_count == 0 and (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            columns.append((name, column.to_numpy()))
        else:
            columns.append((name, column.to_pylist()))
    return columns, range(1, table.num_rows + 1)


KINDS: dict[str, Callable[[Path], Columns]] = {
    ".csv": read_csv,
    ".tsv": read_csv,
    ".txt": read_csv,
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".json": read_json_lines,
    ".parquet": read_parquet,
    ".pq": read_parquet,
}
