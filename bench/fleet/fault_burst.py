"""A burst of faults beside a steady load: so many other nodes report a fault at one moment. How long until all is decided?"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from statistics import median

from bench.fleet.faults import Faults
from bench.fleet.link import Link, build_request, open_link
from bench.fleet.options import address_of, node_name, token_of
from bench.fleet.report_content import Words
from bench.fleet.store import count_decided_incidents
from vocabulary.messages.wire import FindingChange

DECIDED_WITHIN_S, POLL_S, QUIET_S = 120.0, 0.2, 5.0


class FaultBurst:
    """Nodes from number `first` on; they join at once, and break at `at_s` after the start."""

    def __init__(self, port: int, url: str, nodes: range, at_s: float) -> None:
        self._port, self._url, self._nodes, self._at_s = port, url, nodes, at_s
        self.took_s: list[float] = []
        self.decided_s = float("nan")
        self._refused = self._incidents = 0
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wait(self) -> None:
        """Wait until all is decided: `took_s` until each fault was durable, `decided_s` until the last incident was."""
        self._thread.join(self._at_s + DECIDED_WITHIN_S)

    def describe(self) -> str:
        """What was measured."""
        return (
            f"{len(self._nodes)} faulty nodes at one moment: durable after {median(self.took_s):.2f} s in the median, "
            f"{max(self.took_s):.2f} s at last; the last of {self._incidents} incidents "
            f"decided after {self.decided_s:.2f} s; {self._refused} refused."
        )

    async def _run(self) -> None:
        begun = time.monotonic()
        words = {number: Words(number, node_name(number), f"agent-{number}", 0.0) for number in self._nodes}
        links: dict[int, Link] = {}
        for number in self._nodes:
            links[number] = await open_link(address_of(number), self._port, None)
            await links[number].ask(self._request(number, words[number].report(1, (), ())))
        requests: dict[int, bytes] = {}
        for number in self._nodes:
            name = node_name(number)
            finding = Faults(name, 0.0, random.Random(number)).new(time.time())  # noqa: S311 - no secret
            requests[number] = self._request(number, words[number].report(2, (FindingChange(1, finding),), (finding,)))
        await asyncio.sleep(max(0.0, begun + self._at_s - time.monotonic()))
        broken_at = time.monotonic()
        await asyncio.gather(*(self._break(links[number], requests[number], broken_at) for number in self._nodes))
        self._incidents, decided_at = _wait_for_decisions(self._url)
        self.decided_s = decided_at - broken_at
        for link in links.values():
            link.close()

    async def _break(self, link: Link, request: bytes, begun: float) -> None:
        answer = await link.ask(request)
        self._refused += answer.status != 200
        self.took_s.append(time.monotonic() - begun)

    def _request(self, number: int, body: bytes) -> bytes:
        name = node_name(number)
        return build_request("POST", f"/v1/nodes/{name}/report", token_of(name), body)


def _wait_for_decisions(url: str) -> tuple[int, float]:
    """Wait until no incident more is decided; how many, and when the last one was seen (monotonic s)."""
    count, at = 0, time.monotonic()
    while time.monotonic() - at < QUIET_S:
        now = count_decided_incidents(url)
        if now != count:
            count, at = now, time.monotonic()
        time.sleep(POLL_S)
    return count, at
