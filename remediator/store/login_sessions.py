"""Logins of people at the pages. A session rests on a token, and ends with it, with a logout, or when its time is over.

Only a digest of what the browser keeps is stored, in `meta`, so a session outlives a restart and the leader, and who reads
the database cannot take one over. Begin and end are in the audit log.

They are few, and only the leader makes them: it reads all of them once, when its term begins. So a cookie that nobody was
given costs no look into the database.
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

SESSIONS_MAX = 1000  # of all; beyond, the oldest end
OF_A_TOKEN_MAX = 10  # browsers of one person; beyond, their own oldest end
KEY = "session:"
DIGEST_CHARS = 48  # of 64; with KEY it fits a key of `meta`


class LoginSession(msgspec.Struct, frozen=True, array_like=True):
    """Which token it rests on, and its time in UTC seconds."""

    token_id: str
    began_at: float
    ends_at: float


class LoginSessions:
    """The sessions of one cluster, for one term. Any thread may use it."""

    def __init__(self, engine: Engine, most: int = SESSIONS_MAX, of_a_token: int = OF_A_TOKEN_MAX) -> None:
        """Read those that there are. Raises what the database raises."""
        self._engine = engine
        self._most = most
        self._of_a_token = of_a_token
        self._writing = threading.Lock()
        with engine.connect() as db:
            self._epoch = int(get_metadata(db, "epoch") or 0)
            self._known = _stored_sessions(db)

    def begin(self, identity: Identity, now: float, lasts_s: float, actor: str) -> str:
        """A new session. Returns the secret that the browser keeps; this is the only time it is seen.

        Raises:
            StoreError: the term is over.
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
        """The session that this is the secret of, if its time is not over."""
        session = self._known.get(_session_key(secret))
        return session if session is not None and now < session.ends_at else None

    def end(self, secret: str, name: str, actor: str, now: float) -> None:
        """Log out. Doing it again changes nothing.

        Raises:
            StoreError: the term is over.
        """
        key = _session_key(secret)
        with self._writing:
            with self._engine.begin() as db:
                begin_write(db, self._epoch)
                if db.execute(delete(table_schema.meta).where(table_schema.meta.c.key == key)).rowcount:
                    self._note(db, "session_ended", f"{name} logged out of the pages", actor, now)
            self._known.pop(key, None)  # last: as long as the database keeps it, somebody can ask for its end again

    def _to_end(self, token_id: str, now: float) -> set[str]:
        """Whose time is over, and the oldest of too many: first those of the token that one more is for."""
        over = {key for key, session in self._known.items() if session.ends_at <= now}
        left = [key for key in self._known if key not in over]
        mine = self._oldest((key for key in left if self._known[key].token_id == token_id), self._of_a_token)
        return over | mine | self._oldest((key for key in left if key not in mine), self._most)

    def _oldest(self, keys: Iterable[str], most: int) -> set[str]:
        """Those that must go so that there is room for one more."""
        newest = sorted(keys, key=lambda key: self._known[key].began_at, reverse=True)
        return set(newest[most - 1 :])

    def _note(self, db: Connection, kind: str, text: str, actor: str, now: float) -> None:
        audit_log.append_audit_events(db, [AuditEvent(at=now, kind=kind, text=text, actor=actor)], self._epoch)


def _stored_sessions(db: Connection) -> dict[str, LoginSession]:
    found = {}
    for row in db.execute(select(table_schema.meta).where(table_schema.meta.c.key.startswith(KEY))):
        try:
            found[row.key] = msgspec.json.decode(row.value, type=LoginSession)
        except msgspec.MsgspecError as error:  # its person logs in again
            log.warning("a session in the database cannot be read: %s", error)
    return found


def _session_key(secret: str) -> str:
    return KEY + hashlib.sha256(secret.encode(errors="surrogatepass")).hexdigest()[:DIGEST_CHARS]
