"""Credentials: issue, rotate, revoke and verify. Only digests are stored; every change is audited with its actor.

Valid tokens are cached, so a request needs no query; a value in `meta` changes with every change of a token, and is
polled often (`refresh`).
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

from msgspec.structs import replace
from sqlalchemy import ColumnElement, Connection, Engine, and_, or_, select

from remediator.model.credentials import JOIN_S, Identity, Role, TokenView
from remediator.model.journal_records import AuditEvent
from remediator.store import audit_log, table_schema
from remediator.store.database_metadata import get_metadata, set_metadata

__all__ = ["EnrolmentRefused", "Identity", "Role", "Tokens"]

ID_CHARS = 12
CHANGED = "tokens"  # the key in `meta`
_T = table_schema.tokens.c


class EnrolmentRefused(Exception):
    """A node gets no token of its own, and why."""


class Tokens:
    """The tokens of one cluster. Any thread may use it."""

    def __init__(self, engine: Engine, wall: Callable[[], float] = time.time) -> None:
        self._engine = engine
        self._wall = wall
        self._known: dict[str, Identity] = {}
        self._by_id: dict[str, Identity] = {}
        self._nodes: frozenset[str] = frozenset()
        self._version: str | None = None
        self._loaded = False
        self._reading = threading.Lock()

    def identify(self, token: str) -> Identity | None:
        """Return the identity of a valid token, from the cache.

        Tokens are looked up by digest, so the time it takes reveals nothing about a token's text.
        """
        identity = self._known.get(_token_digest(token))
        return identity if identity is not None and identity.valid(self._wall()) else None

    def holds(self, identity: Identity) -> bool:
        """Return whether what was admitted with this identity may stay: its token is neither revoked nor expired."""
        return identity.valid(self._wall()) and identity.id in self._by_id

    def has_node(self, node: str) -> bool:
        """Return whether the node has a token that was not revoked, from the cache."""
        return node in self._nodes

    def named(self, token_id: str) -> Identity | None:
        """Return the identity of the valid token with this id, from the cache."""
        identity = self._by_id.get(token_id)
        return identity if identity is not None and identity.valid(self._wall()) else None

    def refresh(self) -> bool:
        """Read changes. Returns whether there were any. Raises the database's errors."""
        with self._reading, self._engine.connect() as db:
            version = get_metadata(db, CHANGED)
            if self._loaded and version == self._version:
                return False
            rows = db.execute(select(table_schema.tokens).where(_T.revoked_at.is_(None)))
            # the node whose response was lost may use its join secret again
            self._known = {r.digest: Identity(Role(r.role), r.name, r.digest[:ID_CHARS], r.expires_at) for r in rows}
            self._by_id = {identity.id: identity for identity in self._known.values()}
            self._nodes = frozenset(i.name for i in self._known.values() if i.role is Role.NODE)
            self._version, self._loaded = version, True
            return True

    def issue(
        self,
        role: Role,
        name: str,
        now: float,
        *,
        actor: str = "",
        expires_at: float | None = None,
        uses: int | None = None,
        replaces: bool = False,
    ) -> str:
        """Issue a new token; its text is visible only now. `uses` and `replaces` are for join secrets."""
        if role is Role.JOIN and expires_at is None:
            expires_at = now + JOIN_S
        token = _new_token()
        with self._engine.begin() as db:
            grant = TokenView(
                "", role, name, now, _issuer_name(actor), expires_at=expires_at, uses_left=uses, replaces=replaces
            )
            _insert_token(db, grant, _token_digest(token))
            _note_token_change(
                db, "token_issued", f"a token of {role.value} {name} was issued", grant, _token_digest(token), now
            )
        self.refresh()
        return token

    def rotate(
        self, role: Role, name: str, now: float, overlap_s: float, *, actor: str = "", expires_at: float | None = None
    ) -> str:
        """Issue a new token for a name. Its old ones end after `overlap_s`; so two are valid meanwhile.

        By default it expires when the longest of them would have.

        Raises:
            LookupError: the name has no valid token.
        """
        with self._engine.begin() as db:
            mine = and_(_is_valid_clause(now), _T.role == role.value, _T.name == name)
            ends = db.execute(select(_T.expires_at).where(mine)).scalars().all()
            if not ends:
                raise LookupError(f"{role.value} {name} has no valid token; issue one")
            over = now + overlap_s
            later = or_(_T.expires_at.is_(None), _T.expires_at > over)
            db.execute(table_schema.tokens.update().where(mine, later).values(expires_at=over))
            if expires_at is None and None not in ends:
                expires_at = max(end for end in ends if end is not None)
            grant = TokenView("", role, name, now, _issuer_name(actor), expires_at=expires_at)
            token = _new_token()
            _insert_token(db, grant, _token_digest(token))
            text = f"{role.value} {name} got a new token, the old ones end in {overlap_s:g} s"
            _note_token_change(db, "token_rotated", text, grant, _token_digest(token), now)
        self.refresh()
        return token

    def revoke(
        self, now: float, *, actor: str = "", token_id: str = "", role: Role | None = None, name: str = ""
    ) -> list[TokenView]:
        """End tokens now: the one with this id, or all of a role and name. Returns those that were valid until now."""
        which = (
            _T.digest.startswith(token_id, autoescape=True)
            if token_id
            else and_(_T.role == (role and role.value), _T.name == name)
        )
        if token_id and len(token_id) != ID_CHARS:
            return []
        with self._engine.begin() as db:
            rows = db.execute(select(table_schema.tokens).where(which, _T.revoked_at.is_(None))).all()
            digests = [row.digest for row in rows]
            db.execute(table_schema.tokens.update().where(_T.digest.in_(digests)).values(revoked_at=now))
            for row in rows:
                text = f"a token of {row.role} {row.name} was revoked"
                _note_token_change(
                    db, "token_revoked", text, replace(_token_view(row), issued_by=_issuer_name(actor)), row.digest, now
                )
        self.refresh()
        return [_token_view(row) for row in rows]

    def all(self) -> list[TokenView]:
        """Return every token ever issued, oldest first."""
        with self._engine.connect() as db:
            return [
                _token_view(row) for row in db.execute(select(table_schema.tokens).order_by(_T.issued_at, _T.digest))
            ]

    def enrol(self, secret: str, node: str, now: float, *, mine: str = "", actor: str = "") -> str:
        """Give a node its own token, once per use of the join secret. Returns its text, empty if the node made it.

        `mine` is the digest of a token that the node made. A retry changes nothing: the response may have been lost.

        Raises:
            EnrolmentRefused: the secret is used up, expired, or for other nodes; or the node has another token already.
        """
        with self._engine.begin() as db:
            if mine and _enrolled_before(db, node, mine, now):
                return ""
            join = _use_join_secret(db, _token_digest(secret), node, now)
            has = and_(_is_valid_clause(now), _T.role == Role.NODE.value, _T.name == node)
            if db.execute(select(_T.digest).where(has)).first() is not None:
                if not join.replaces:
                    raise EnrolmentRefused(f"node {node} already has a token; an admin can revoke or rotate it")
                db.execute(table_schema.tokens.update().where(has).values(revoked_at=now))
            token = "" if mine else _new_token()
            digest = mine or _token_digest(token)
            grant = TokenView("", Role.NODE, node, now, _issuer_name(actor))
            _insert_token(db, grant, digest)
            text = f"node {node} enrolled with the join secret {join.digest[:ID_CHARS]}"
            _note_token_change(db, "node_enrolled", text, grant, digest, now)
        self.refresh()
        return token


def _enrolled_before(db: Connection, node: str, digest: str, now: float) -> bool:
    if db.execute(select(_T.digest).where(_T.digest == digest)).first() is None:
        return False
    theirs = and_(_is_valid_clause(now), _T.digest == digest, _T.role == Role.NODE.value, _T.name == node)
    if db.execute(select(_T.digest).where(theirs)).first() is None:
        raise EnrolmentRefused(
            f"the token that node {node} proposed was revoked or belongs to another node; run the enrolment again"
        )
    return True


def _use_join_secret(db: Connection, digest: str, node: str, now: float) -> Any:
    """Use a join secret once. Returns its row."""
    mine = and_(_T.digest == digest, _T.role == Role.JOIN.value, _is_valid_clause(now), _T.uses_left > 0)
    used = table_schema.tokens.update().where(mine).values(uses_left=_T.uses_left - 1)
    if not db.execute(used).rowcount:  # one statement: two nodes cannot share the last use
        raise EnrolmentRefused("this join secret is unknown, used up or expired")
    join = db.execute(select(table_schema.tokens).where(_T.digest == digest)).one()
    if not fnmatchcase(node, join.name):
        raise EnrolmentRefused(f"this join secret is for nodes {join.name}, not for {node}")
    return join


def _is_valid_clause(now: float) -> ColumnElement[bool]:
    return and_(_T.revoked_at.is_(None), or_(_T.expires_at.is_(None), _T.expires_at > now))


def _new_token() -> str:
    return "ghd_" + secrets.token_urlsafe(32)


def _insert_token(db: Connection, grant: TokenView, digest: str) -> None:
    """Store a new token's digest with what it grants."""
    row = {name: getattr(grant, name) for name in TokenView.__struct_fields__ if name != "id"}
    db.execute(table_schema.tokens.insert(), [row | {"digest": digest, "role": grant.role.value}])


def _note_token_change(db: Connection, kind: str, text: str, grant: TokenView, digest: str, now: float) -> None:
    data: dict[str, str | int | float | bool] = {
        "token": digest[:ID_CHARS],
        "role": grant.role.value,
        "name": grant.name,
    }
    node = grant.name if grant.role is Role.NODE else ""
    event = AuditEvent(at=now, kind=kind, text=text, actor=grant.issued_by, node=node, data=data)
    audit_log.append_audit_events(db, [event], int(get_metadata(db, "epoch") or 0))
    set_metadata(db, CHANGED, secrets.token_hex(8))


def _token_view(row: Any) -> TokenView:
    return TokenView(
        id=row.digest[:ID_CHARS],
        role=Role(row.role),
        name=row.name,
        issued_at=row.issued_at,
        issued_by=row.issued_by,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        uses_left=row.uses_left,
        replaces=row.replaces,
    )


def _issuer_name(actor: str) -> str:
    return actor[:255] or "remediator"


def _token_digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogatepass")).hexdigest()
