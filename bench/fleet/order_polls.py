"""A node's poll for orders, as healthd keeps it: a second connection, held open by the controller for half a minute, then asked again."""

from __future__ import annotations

import asyncio
import random
import time

from bench.fleet.balancer import Balancer
from bench.fleet.link import Answer, Link, build_request, open_link
from bench.fleet.options import INTERVAL_S, Options, address_of, node_name, token_of
from bench.fleet.outcome import Outcome
from healthd.controller.controller_client import ControllerUnreachable, RetryBackoff, jitter_delay

WAIT_S = 30
ANSWER_WITHIN_S = 60.0


class Poll:
    """Of one node. Its time counts from when the controller should have answered."""

    def __init__(self, number: int, options: Options, balancer: Balancer, outcome: Outcome) -> None:
        dice = random.Random(options.seed * 7_000_003 + number)  # noqa: S311 - when it begins, no secret
        self._name = node_name(number)
        self._begin_s = dice.uniform(0, INTERVAL_S)
        self._address = address_of(number)
        self._balancer = balancer
        self._outcome = outcome
        self._link = Link()

    async def run(self) -> None:
        """Poll until cancelled."""
        await asyncio.sleep(self._begin_s)
        backoff = RetryBackoff()
        together = True
        try:
            while True:
                try:
                    await self._once(jitter_delay(WAIT_S, together=together))
                    backoff.reset()
                    together = False
                except ControllerUnreachable as error:
                    together = True
                    self._link.close()
                    await asyncio.sleep(backoff.after(error))
        finally:
            self._link.close()

    async def _once(self, wait_s: float) -> None:
        begun = time.monotonic()
        try:
            answer = await asyncio.wait_for(self._ask(wait_s), ANSWER_WITHIN_S)
        except (OSError, asyncio.TimeoutError) as error:
            self._outcome.failed[f"poll {type(error).__name__}"] += 1
            raise ControllerUnreachable(str(error)) from error
        if answer.status != 200:
            self._outcome.failed[f"poll {answer.status}"] += 1
            raise ControllerUnreachable(str(answer.status), answer.retry_after_s)
        if time.monotonic() - begun >= wait_s:
            self._outcome.answered("poll", begun + wait_s)

    async def _ask(self, wait_s: float) -> Answer:
        if not self._link.is_open:
            self._link = await open_link(self._address, self._balancer.port, self._balancer.trust)
        path = f"/v1/nodes/{self._name}/orders?wait_s={wait_s:g}"
        return await self._link.ask(build_request("GET", path, token_of(self._name)))
