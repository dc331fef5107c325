"""Where the leader is: it writes it down when its term begins, for those who ask a replica that stands by."""

from __future__ import annotations

import msgspec
from sqlalchemy import Engine

from remediator.store.meta import get_meta, set_meta

KEY = "leader"
TEXT_MAX = 100


class Whereabouts(msgspec.Struct, frozen=True):
    """`host` and `listen` as the leader knows them; `url` if its configuration says how people reach it."""

    host: str
    listen: str
    url: str = ""


def tell(engine: Engine, where: Whereabouts) -> None:
    """Write it down."""
    with engine.begin() as db:
        set_meta(db, KEY, msgspec.json.encode(where).decode())


def read(engine: Engine) -> Whereabouts | None:
    """Where the newest leader was when its term began; None before the first."""
    with engine.connect() as db:
        text = get_meta(db, KEY)
    return msgspec.json.decode(text, type=Whereabouts) if text else None
