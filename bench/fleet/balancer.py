"""Where the replica is that leads: what a load balancer in front of them knows, from asking each for its health."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Sequence

from bench.fleet.link import Answer, Link, build_request, open_link

ASK_EVERY_S = 0.5
ANSWER_WITHIN_S = 2.0
HERE = "127.0.0.1"


class Balancer:
    """`port` is where requests go. `gaps` are the times in which nobody led, seconds by the monotonic clock."""

    def __init__(self, ports: Sequence[int], trust: ssl.SSLContext | None) -> None:
        self.port = ports[0]
        self.trust = trust
        self.gaps: list[tuple[float, float]] = []
        self._ports = ports
        self._links: dict[int, Link] = {}
        self._away_since: float | None = None

    async def watch(self) -> None:
        """Ask until cancelled."""
        while True:
            if not await self._ready(self.port):
                await self._look_elsewhere()
            elif self._away_since is not None:
                self.gaps.append((self._away_since, time.monotonic()))
                self._away_since = None
            await asyncio.sleep(ASK_EVERY_S)

    async def _look_elsewhere(self) -> None:
        self._away_since = self._away_since or time.monotonic()
        for port in self._ports:
            if await self._ready(port):
                self.port = port
                return

    async def _ready(self, port: int) -> bool:
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            answer = await asyncio.wait_for(self._asked(port), ANSWER_WITHIN_S)
            return answer.status == 200
        self._links.pop(port, Link()).close()
        return False

    async def _asked(self, port: int) -> Answer:
        link = self._links.get(port)
        if link is None or not link.is_open:
            link = self._links[port] = await open_link(HERE, port, self.trust)
        return await link.ask(build_request("GET", "/healthz", "none"))
