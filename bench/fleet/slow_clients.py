"""Clients whose reports come in drops: a bad line, or one who wants to hold the door. Others must not notice."""

from __future__ import annotations

import asyncio
import time

from bench.fleet.balancer import Balancer
from bench.fleet.link import HEAD_END, build_request, open_link
from bench.fleet.options import address_of, slow_name, token_of
from bench.fleet.outcome import Outcome
from bench.fleet.report_content import Words

PIECES = 30
PAUSE_S = 0.5  # between two pieces: a body takes 15 s, and half a minute is allowed
APART_S = 5.0
NUMBER = 100_000  # above those of the fleet: an address of its own


class Dripping:
    """One of them."""

    def __init__(self, number: int, balancer: Balancer, outcome: Outcome) -> None:
        self._name = slow_name(number)
        self._address = address_of(NUMBER + number)
        self._words = Words(NUMBER + number, self._name, "agent", time.time() - 3600)
        self._balancer = balancer
        self._outcome = outcome
        self._seq = 0

    async def run(self) -> None:
        """Drip until cancelled."""
        while True:
            try:
                self._outcome.dripped[str(await self._once())] += 1
            except OSError as error:
                self._outcome.dripped[type(error).__name__] += 1
            await asyncio.sleep(APART_S)

    async def _once(self) -> int:
        self._seq += 1
        body = self._words.report(self._seq, (), ())
        whole = build_request("POST", f"/v1/nodes/{self._name}/report", token_of(self._name), body)
        link = await open_link(self._address, self._balancer.port, self._balancer.trust)
        try:
            link.expect()
            head, _, rest = whole.partition(HEAD_END)
            link.send(head + HEAD_END)
            size = len(rest) // PIECES + 1
            for begin in range(0, len(rest), size):
                await asyncio.sleep(PAUSE_S)
                link.send(rest[begin : begin + size])
            return (await link.answered()).status
        finally:
            link.close()
