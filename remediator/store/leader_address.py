"""The leader's address, stored at the start of its term for clients of a standby."""

from __future__ import annotations

import msgspec
from sqlalchemy import Engine

from remediator.store.database_metadata import get_metadata, set_metadata

KEY = "leader"
TEXT_MAX = 100


class LeaderAddress(msgspec.Struct, frozen=True):
    """`host` and `listen` as the leader knows them; `url` if configured."""

    host: str
    listen: str
    url: str = ""


def write_leader_address(engine: Engine, where: LeaderAddress) -> None:
    """Store the address."""
    with engine.begin() as db:
        set_metadata(db, KEY, msgspec.json.encode(where).decode())


def read_leader_address(engine: Engine) -> LeaderAddress | None:
    """Return the newest leader's address at the start of its term; None before the first."""
    with engine.connect() as db:
        text = get_metadata(db, KEY)
    return msgspec.json.decode(text, type=LeaderAddress) if text else None
