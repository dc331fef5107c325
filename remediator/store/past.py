"""What happened to nodes in the last months, for judging them by it: read-only, beside the deciding thread."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from sqlalchemy import Engine, false, or_, select

from remediator.model.occurrence import Occurrence
from remediator.store import schema

ROWS_MAX = 200_000  # the newest count


class PastStore:
    """Questions about what nodes went through. Callable from any thread."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def occurrences(self, kinds: Collection[str], checks: Collection[str], since: float) -> list[Occurrence]:
        """Those of these kinds, or with any code of these checks, after `since` (UTC s), newest first; drills are left out."""
        table = schema.occurrences
        which = or_(
            table.c.kind.in_(kinds), *(table.c.kind.startswith(f"{check}/", autoescape=True) for check in checks)
        )
        query = select(table.c.body).where(table.c.at > since, table.c.injected == false(), which)
        with self._engine.connect() as db:
            found = db.execute(query.order_by(table.c.at.desc()).limit(ROWS_MAX))
            return [msgspec.json.decode(body, type=Occurrence) for (body,) in found]
