"""Queries on the nodes' history of the last months: read-only, outside the decision thread."""

from __future__ import annotations

import logging
from collections.abc import Collection

import msgspec
from sqlalchemy import ColumnElement, Engine, Select, and_, false, func, or_, select

from remediator.model.occurrence import Occurrence
from remediator.store import table_schema

log = logging.getLogger(__name__)
ROWS_MAX = 200_000


class OccurrenceQueries:
    """Queries on the nodes' history. Safe to call from any thread."""

    def __init__(self, engine: Engine, rows_max: int = ROWS_MAX) -> None:
        """Args: `rows_max`: most occurrences of a result."""
        self._engine = engine
        self._rows_max = rows_max

    def occurrences(self, kinds: Collection[str], checks: Collection[str], since: float) -> list[Occurrence]:
        """Return those of these kinds, or with any code of these checks, after `since` (UTC s), unordered.

        Without drills.

        If there are too many, each node's newest are kept: one node with very many does not displace the others'
        history.
        """
        table = table_schema.occurrences
        which = or_(
            table.c.kind.in_(kinds), *(table.c.kind.startswith(f"{check}/", autoescape=True) for check in checks)
        )
        asked = and_(table.c.at > since, table.c.injected == false(), which)
        newest = select(table.c.body).where(asked).order_by(table.c.at.desc()).limit(self._rows_max + 1)
        with self._engine.connect() as db:
            bodies = db.execute(newest).scalars().all()
            if len(bodies) > self._rows_max:
                found = db.execute(_newest_by_node(asked, self._rows_max)).all()
                bodies = [body for _, body in found]
                text = "the nodes' history has more than the %d occurrences that are read: about the newest %d of each node count"
                log.warning(text, self._rows_max, max(nth for nth, _ in found))
        return [msgspec.json.decode(body, type=Occurrence) for body in bodies]


def _newest_by_node(asked: ColumnElement[bool], rows_max: int) -> Select[int, bytes]:
    """Return the newest of each node, then the second of each, and so on. It sorts all rows: seconds for a million."""
    table = table_schema.occurrences
    nth = func.row_number().over(partition_by=table.c.node, order_by=(table.c.at.desc(), table.c.seq.desc()))
    ranked = select(table.c.seq, table.c.at, nth.label("nth")).where(asked)
    taken = ranked.order_by("nth", table.c.at.desc()).limit(rows_max).subquery()
    return select(taken.c.nth, table.c.body).join(taken, taken.c.seq == table.c.seq)
