"""Credentials: a node's speaks for that node alone, an operator's reads. Only digests are stored."""

from __future__ import annotations

import enum
import hashlib
import secrets
import time
from typing import NamedTuple

from sqlalchemy import Engine, select

from remediator.store import schema

PREFIX = "ghd_"
KNOWN_FOR_S = 5.0  # how long a looked-up token is believed; so revocation takes at most this long
CACHE_MAX = 100_000


class Role(str, enum.Enum):
    """What a token may do."""

    NODE = "node"
    OPERATOR = "operator"


class Identity(NamedTuple):
    """Whom a token speaks for."""

    role: Role
    name: str


class Tokens:
    """Issue and check tokens."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[str, tuple[float, Identity | None]] = {}

    def issue(self, role: Role, name: str, now: float) -> str:
        """A new token; this is the only time its text is seen."""
        token = PREFIX + secrets.token_urlsafe(32)
        row = {"digest": _digest(token), "role": role.value, "name": name, "issued_at": now}
        with self._engine.begin() as db:
            db.execute(schema.tokens.insert(), [row])
        return token

    def identify(self, token: str) -> Identity | None:
        """Whose token this is, or None. Lookup is by digest, so its timing says nothing about any token's text."""
        digest, now = _digest(token), time.monotonic()
        known = self._known.get(digest)
        if known is not None and now - known[0] < KNOWN_FOR_S:
            return known[1]
        query = select(schema.tokens.c.role, schema.tokens.c.name)
        query = query.where(schema.tokens.c.digest == digest, schema.tokens.c.revoked_at.is_(None))
        with self._engine.connect() as db:
            row = db.execute(query).first()
        identity = Identity(Role(row.role), row.name) if row else None
        if len(self._known) >= CACHE_MAX:
            self._known.clear()
        self._known[digest] = (now, identity)
        return identity


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
