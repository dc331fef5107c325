"""Clients that send what is no report: each must get an error or an end, never a 200 and never a 5xx."""

from __future__ import annotations

import asyncio
import itertools

from bench.fleet.balancer import Balancer
from bench.fleet.link import build_request, open_link
from bench.fleet.options import address_of, slow_name, token_of
from bench.fleet.outcome import Outcome

APART_S = 1.0
ANSWER_WITHIN_S = 20.0
NUMBER = 110_000  # addresses of their own
ENDED = "ended"


def requests_of(node: str) -> dict[str, bytes]:
    """What is wrong, and such a request."""
    path, token = f"/v1/nodes/{node}/report", token_of(node)
    return {
        "no JSON": build_request("POST", path, token, b'{"version": 1, '),
        "a wrong type": build_request("POST", path, token, b'{"version": "one"}'),
        "another node": build_request("POST", "/v1/nodes/gpu-00000/report", token, b"{}"),
        "no such token": build_request("POST", path, "ghd_stranger", b"{}"),
        "no such path": build_request("POST", "/v1/reports", token, b"{}"),
        "a long head": b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * 100_000 + b"\r\n\r\n",
        "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    }


class Malformed:
    """One of them: every kind in turn."""

    def __init__(self, number: int, balancer: Balancer, outcome: Outcome) -> None:
        self._address = address_of(NUMBER + number)
        self._wrong = requests_of(slow_name(number))
        self._balancer = balancer
        self._outcome = outcome

    async def run(self) -> None:
        """Send until cancelled."""
        for wrong, whole in itertools.cycle(self._wrong.items()):
            try:
                answer = await asyncio.wait_for(self._once(whole), ANSWER_WITHIN_S)
            except OSError:
                answer = ENDED
            except asyncio.TimeoutError:
                answer = "no answer"
            self._outcome.malformed[f"{wrong}: {answer}"] += 1
            await asyncio.sleep(APART_S)

    async def _once(self, whole: bytes) -> str:
        link = await open_link(self._address, self._balancer.port, self._balancer.trust)
        try:
            return str((await link.ask(whole)).status)
        finally:
            link.close()
