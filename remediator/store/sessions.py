"""Logins of people at the pages. A session rests on a token, and ends with it, with a logout, or when its time is over.

Only a digest of what the browser keeps is stored, in `meta`, so a session outlives a restart and the leader, and who reads
the database cannot take one over. Begin and end are in the audit log.
"""

from __future__ import annotations

import hashlib
import secrets

import msgspec
from sqlalchemy import Connection, Engine, delete, select

from remediator.model.credentials import Identity
from remediator.model.records import AuditEvent
from remediator.store import audit, schema
from remediator.store.meta import get_meta, set_meta

SESSIONS_MAX = 1000  # beyond, the oldest end
KEY = "session:"
DIGEST_CHARS = 48  # of 64; with KEY it fits a key of `meta`


class Session(msgspec.Struct, frozen=True, array_like=True):
    """Which token it rests on, and its time in UTC seconds."""

    token_id: str
    began_at: float
    ends_at: float


class Sessions:
    """The sessions of one cluster. Any thread may use it."""

    def __init__(self, engine: Engine, most: int = SESSIONS_MAX) -> None:
        self._engine = engine
        self._most = most
        self._known: dict[str, Session] = {}

    def begin(self, identity: Identity, now: float, lasts_s: float, actor: str) -> str:
        """A new session. Returns the secret that the browser keeps; this is the only time it is seen."""
        secret = secrets.token_urlsafe(32)
        session = Session(identity.id, now, min(now + lasts_s, identity.expires_at or float("inf")))
        with self._engine.begin() as db:
            _forget_old(db, now, self._most)
            set_meta(db, _key(secret), msgspec.json.encode(session).decode())
            _note(db, "session_begun", f"{identity.name} logged in at the pages", actor, now)
        self._known[_key(secret)] = session
        return secret

    def find(self, secret: str, now: float) -> Session | None:
        """The session that this is the secret of, if its time is not over. Asks the database for one that is not known."""
        session = self.known(secret, now)
        if session is not None:
            return session
        with self._engine.connect() as db:
            text = get_meta(db, _key(secret))
        if text is None:
            return None
        if len(self._known) >= self._most:
            self._known.clear()
        self._known[_key(secret)] = msgspec.json.decode(text, type=Session)
        return self.known(secret, now)

    def known(self, secret: str, now: float) -> Session | None:
        """The same, as far as memory knows."""
        session = self._known.get(_key(secret))
        return session if session is not None and now < session.ends_at else None

    def end(self, secret: str, name: str, actor: str, now: float) -> None:
        """Log out. Doing it again changes nothing."""
        self._known.pop(_key(secret), None)
        with self._engine.begin() as db:
            if db.execute(delete(schema.meta).where(schema.meta.c.key == _key(secret))).rowcount:
                _note(db, "session_ended", f"{name} logged out of the pages", actor, now)


def _forget_old(db: Connection, now: float, most: int) -> None:
    """Those whose time is over, and the oldest of too many."""
    rows = db.execute(select(schema.meta).where(schema.meta.c.key.startswith(KEY))).all()
    kept = {row.key: msgspec.json.decode(row.value, type=Session) for row in rows}
    newest = sorted(kept, key=lambda key: kept[key].began_at, reverse=True)
    gone = [key for place, key in enumerate(newest) if place >= most - 1 or kept[key].ends_at <= now]
    if gone:
        db.execute(delete(schema.meta).where(schema.meta.c.key.in_(gone)))


def _note(db: Connection, kind: str, text: str, actor: str, now: float) -> None:
    audit.append(db, [AuditEvent(at=now, kind=kind, text=text, actor=actor)], int(get_meta(db, "epoch") or 0))


def _key(secret: str) -> str:
    return KEY + hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()[:DIGEST_CHARS]
