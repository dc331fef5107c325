"""A record: every input of the controller in order, and its decisions. From a database, or a file from ``remediator export``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from sqlalchemy.exc import SQLAlchemyError

from healthctl.exit_codes import Exit, Failure
from remediator.model.journal_records import Decision
from remediator.model.pipeline_inputs import AnyInput
from remediator.store.database import driver_message
from remediator.store.journal import Journal, StoreError
from remediator.store.json_export import ExportLine, export_lines
from remediator.store.schema_upgrade import is_current


class RecordedHistory:
    """Can be read repeatedly. `name` identifies it in messages."""

    def __init__(self, name: str, lines: Callable[[], Iterator[bytes]]) -> None:
        self.name = name
        self._lines = lines

    def inputs(self) -> Iterator[AnyInput]:
        """The pipeline's inputs in order; raises a Failure if the record cannot be read."""
        for line in self._of("inputs"):
            try:
                yield msgspec.json.decode(line.record, type=AnyInput)
            except msgspec.DecodeError as error:
                raise Failure(
                    f"{self.name}: input {line.seq} cannot be read: {error}; it may be from another version"
                ) from None

    def decisions(self) -> dict[str, Decision]:
        """Decisions by id."""
        found = (msgspec.json.decode(line.record, type=Decision) for line in self._of("decisions"))
        return {decision.id: decision for decision in found}

    def begins_late(self) -> bool:
        """Whether earlier inputs were deleted, or are missing from an export of the last days."""
        first = next(self._of("inputs"), None)
        return first is not None and first.seq not in (None, 1)

    def _of(self, table: str) -> Iterator[ExportLine]:
        for number, text in enumerate(self._lines(), 1):
            try:
                line = msgspec.json.decode(text, type=ExportLine)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise Failure(f"{self.name}:{number}: not a line of 'remediator export': {error}", Exit.USAGE) from None
            if line.table == table:
                yield line


@contextlib.contextmanager
def open_recorded_history(place: str) -> Iterator[RecordedHistory]:
    """Open the record in `place`, a database URL or an exported FILE; raises a Failure if there is none."""
    if "://" not in place:
        file = Path(place)
        try:
            with file.open("rb"):
                pass
        except OSError as error:
            raise Failure(f"{file}: cannot be read: {error.strerror}", Exit.USAGE) from None
        yield RecordedHistory(place, lambda: _read_export_lines(file))
        return
    try:
        with contextlib.closing(Journal(place, create=False)) as journal:
            with journal.engine.connect() as db:
                if not is_current(db):  # reading a record must not change it
                    todo = "start this version's controller on it once, or use a copy on which it was started"
                    raise Failure(f"{journal.url}: an older version wrote it; {todo}")
            yield RecordedHistory(str(journal.url), lambda: export_lines(journal.engine, 0.0))
    except (StoreError, SQLAlchemyError) as error:
        raise Failure(driver_message(error), Exit.USAGE) from None


def _read_export_lines(file: Path) -> Iterator[bytes]:
    with file.open("rb") as lines:
        yield from lines
