"""Login sessions of the web pages. A session is bound to a token, and ends with it, by logout, or when it expires.

Only a digest of the browser's secret is stored, in `meta`: sessions survive restarts and a change of leader, and a
reader of the database cannot take one over. Begin and end are audited.

Sessions are few, and only the leader creates them: it reads all of them once, at the start of its term, so an invalid
cookie costs no query.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import threading
from collections.abc import Iterable

import msgspec
from sqlalchemy import Connection, Engine, delete, select

from remediator.model.credentials import Identity
from remediator.model.journal_records import AuditEvent
from remediator.store import audit_log, table_schema
from remediator.store.database_metadata import begin_write, get_metadata, set_metadata

log = logging.getLogger(__name__)

SESSIONS_MAX = 1000  # in total; beyond, the oldest end
OF_A_TOKEN_MAX = 10  # browsers per user; beyond, their oldest ones end
KEY = "session:"
DIGEST_CHARS = 48  # of 64; with KEY it fits a key of `meta`


class LoginSession(msgspec.Struct, frozen=True, array_like=True):
    """Its token, and its times in UTC seconds."""

    token_id: str
    began_at: float
    ends_at: float


class LoginSessions:
    """The sessions of one cluster, for one term. Any thread may use it."""

    def __init__(self, engine: Engine, most: int = SESSIONS_MAX, of_a_token: int = OF_A_TOKEN_MAX) -> None:
        """Read the existing ones. Raises the database's errors."""
        self._engine = engine
        self._most = most
        self._of_a_token = of_a_token
        self._writing = threading.Lock()
        with engine.connect() as db:
            self._epoch = int(get_metadata(db, "epoch") or 0)
            self._known = _stored_sessions(db)

    def begin(self, identity: Identity, now: float, lasts_s: float, actor: str) -> str:
        """Start a session. Returns the browser's secret, which is visible only now.

        Raises:
            StoreError: the term has ended.
        """
        secret = secrets.token_urlsafe(32)
        session = LoginSession(identity.id, now, min(now + lasts_s, identity.expires_at or float("inf")))
        with self._writing:
            gone = self._to_end(identity.id, now)
            with self._engine.begin() as db:
                begin_write(db, self._epoch)
                if gone:
                    db.execute(delete(table_schema.meta).where(table_schema.meta.c.key.in_(gone)))
                set_metadata(db, _session_key(secret), msgspec.json.encode(session).decode())
                self._note(db, "session_begun", f"{identity.name} logged in at the pages", actor, now)
            for key in gone:
                self._known.pop(key, None)
            self._known[_session_key(secret)] = session
        return secret

    def find(self, secret: str, now: float) -> LoginSession | None:
        """Return the session of this secret, if it has not expired."""
        session = self._known.get(_session_key(secret))
        return session if session is not None and now < session.ends_at else None

    def end(self, secret: str, name: str, actor: str, now: float) -> None:
        """Log out. A repetition changes nothing.

        Raises:
            StoreError: the term has ended.
        """
        key = _session_key(secret)
        with self._writing:
            with self._engine.begin() as db:
                begin_write(db, self._epoch)
                if db.execute(delete(table_schema.meta).where(table_schema.meta.c.key == key)).rowcount:
                    self._note(db, "session_ended", f"{name} logged out of the pages", actor, now)
            self._known.pop(key, None)  # last: as long as the database has it, logout can be retried

    def _to_end(self, token_id: str, now: float) -> set[str]:
        """Return expired sessions and the oldest beyond the limits, first those of the new session's token."""
        over = {key for key, session in self._known.items() if session.ends_at <= now}
        left = [key for key in self._known if key not in over]
        mine = self._oldest((key for key in left if self._known[key].token_id == token_id), self._of_a_token)
        return over | mine | self._oldest((key for key in left if key not in mine), self._most)

    def _oldest(self, keys: Iterable[str], most: int) -> set[str]:
        """Return the oldest, to make room for one more."""
        newest = sorted(keys, key=lambda key: self._known[key].began_at, reverse=True)
        return set(newest[most - 1 :])

    def _note(self, db: Connection, kind: str, text: str, actor: str, now: float) -> None:
        audit_log.append_audit_events(db, [AuditEvent(at=now, kind=kind, text=text, actor=actor)], self._epoch)


def _stored_sessions(db: Connection) -> dict[str, LoginSession]:
    found = {}
    for row in db.execute(select(table_schema.meta).where(table_schema.meta.c.key.startswith(KEY))):
        try:
            found[row.key] = msgspec.json.decode(row.value, type=LoginSession)
        except msgspec.MsgspecError as error:  # its user logs in again
            log.warning("a session in the database cannot be read: %s", error)
    return found


def _session_key(secret: str) -> str:
    return KEY + hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()[:DIGEST_CHARS]
