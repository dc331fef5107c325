"""A whole controller in this process, called as the server calls it, without a socket."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from remediator.api.api_application import build_app
from remediator.api.handler_context import HandlerContext, LongPollWakeups
from remediator.config import Config, SchedulerConfig
from remediator.engine.policy_reload import PolicyReloader
from remediator.model.plan_steps import Mode
from remediator.server_config import AccessLimits
from remediator.serving.leader_term import LeaderTerm
from remediator.store.journal import Journal
from remediator.store.token_store import Role, Tokens
from remediator.web.web_application import WebApplication

NO_LIMITS = AccessLimits(
    node_per_s=1e9, node_burst=10**9, person_per_s=1e9, person_burst=10**9, unknown_per_s=1e9, unknown_burst=10**9
)  # fmt: skip


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Inside:
    """A leader with tokens for two nodes, an ingest, a viewer, an operator, an admin, and a join secret."""

    def __init__(
        self,
        place: Path,
        mode: Mode = Mode.RECOMMEND,
        limits: AccessLimits = NO_LIMITS,
        database: str = "",
        **more: Any,
    ) -> None:
        self.config = Config(
            database=database or f"sqlite:///{place}/r.db",
            mode=mode,
            scheduler=SchedulerConfig(state_file=f"{place}/holds.json"),
            limits=limits,
            **more,
        )
        self.journal = Journal(self.config.database)
        self.wakeups = LongPollWakeups()
        self._term = LeaderTerm(self.config, PolicyReloader(self.config), self.journal, self.wakeups, lambda _why: None)
        self._term.start()
        self.service: HandlerContext = self._term.service
        self.tokens: Tokens = self.service.tokens
        now = self.service.clock.wall()
        people = (
            ("vic", Role.VIEWER),
            ("ann", Role.OPERATOR),
            ("root", Role.ADMIN),
            ("n1", Role.NODE),
            ("n2", Role.NODE),
            ("i1", Role.INGEST),
        )
        self.token = {name: self.tokens.issue(role, name, now) for name, role in people}
        self.token["join"] = self.tokens.issue(Role.JOIN, "gpu-*", now, uses=3)
        self._loop = asyncio.new_event_loop()
        self.wakeups.bind(self._loop)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.app = build_app(self.service, WebApplication(self.config).leading)

    def close(self) -> None:
        self.wakeups.end()
        self._term.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()
        self.journal.close()

    def call(
        self, method: str, path: str, who: str = "", body: Any = b"", headers: dict[str, str] | None = None, **more: Any
    ) -> Answer:
        """One request and its whole answer; `who` is a name with a token, or a token."""
        return self.begin(method, path, who, body, headers, **more).result(60)

    def begin(
        self, method: str, path: str, who: str = "", body: Any = b"", headers: dict[str, str] | None = None, **more: Any
    ) -> Any:
        """The same, as a future."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        known = {"authorization": f"Bearer {self.token.get(who, who)}"} if who else {}
        pairs = [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in (known | (headers or {})).items()]
        return asyncio.run_coroutine_threadsafe(self._ask(method, path, content, pairs, more), self._loop)

    async def _ask(
        self, method: str, path: str, content: bytes, headers: list[tuple[bytes, bytes]], more: dict[str, Any]
    ) -> Answer:
        bare, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(bare),
            "raw_path": bare.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": headers,
            "client": ("192.0.2.7", 1),
            "server": ("127.0.0.1", 1),
            **more,
        }
        sent: list[dict[str, Any]] = []
        asked = False

        async def receive() -> dict[str, Any]:
            nonlocal asked
            if asked:
                await asyncio.Event().wait()
            asked = True
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)  # type: ignore[arg-type]  # a dict is what servers hand over
        head = sent[0]
        found = {k.decode(): v.decode() for k, v in head.get("headers", [])}
        return Answer(head["status"], found, b"".join(m.get("body", b"") for m in sent[1:]))
