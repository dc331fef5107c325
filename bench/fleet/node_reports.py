"""A node's reports, as healthd's uplink sends them: every interval, at once on a change, and a change again until it is acknowledged.

As there, the interval begins with the answer: a controller that answers late is asked less often, and not pressed for what it missed.
"""

from __future__ import annotations

import asyncio
import random
import time

from bench.fleet.balancer import Balancer
from bench.fleet.faults import Faults
from bench.fleet.link import Answer, Link, build_request, open_link
from bench.fleet.options import Options, address_of, node_name, token_of
from bench.fleet.outcome import Outcome
from bench.fleet.report_content import Words
from healthd.controller.controller_client import ControllerUnreachable, RetryBackoff, jitter_delay
from vocabulary.finding import Finding
from vocabulary.messages.wire import FindingChange, ReportReply, decode_message

ANSWER_WITHIN_S = 30.0


class Node:
    """One of them; `run` is its uplink. `news` is set when it has something to tell at once."""

    def __init__(self, number: int, options: Options, balancer: Balancer, outcome: Outcome) -> None:
        dice = random.Random(options.seed * 1_000_003 + number)  # noqa: S311 - when things happen, no secret
        self.name = node_name(number)
        self._address = address_of(number)
        self._balancer = balancer
        self._outcome = outcome
        self._words = Words(number, self.name, f"agent-{number}", time.time() - 3600)
        self._faults = Faults(self.name, options.faults_per_day, dice)
        self._interval_s = options.interval_s
        self._phase_s = dice.uniform(0, options.interval_s)
        self._link = Link()
        self._seq = 0
        self._change_seq = 0
        self._changes: list[FindingChange] = []
        self._active: dict[str, Finding] = {}
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Report until cancelled."""
        breaking = asyncio.create_task(self._break())
        try:
            await self._report_for_ever()
        finally:
            breaking.cancel()
            self._link.close()

    def breaks(self) -> None:
        """A fault begins now."""
        finding = self._faults.new(time.time())
        self._active[finding.id] = finding
        self._tell(finding)

    async def _break(self) -> None:
        while True:
            await asyncio.sleep(min(self._faults.pause_s(), 1e6))
            self.breaks()
            asyncio.get_running_loop().call_later(self._faults.lasts_s(), self._mend)

    def _mend(self) -> None:
        if self._active:
            finding = self._active.pop(next(iter(self._active)))
            self._tell(finding.cleared(time.time(), "a reading showed the contrary"))

    def _tell(self, finding: Finding) -> None:
        self._change_seq += 1
        self._changes.append(FindingChange(self._change_seq, finding))
        self._news.set()

    async def _report_for_ever(self) -> None:
        backoff = RetryBackoff()
        due = time.monotonic() + self._phase_s
        together = False  # they begin apart
        await asyncio.sleep(self._phase_s)
        while True:
            self._news.clear()
            try:
                await self._report(due)
            except ControllerUnreachable as error:
                due = time.monotonic() + backoff.after(error)
                await asyncio.sleep(due - time.monotonic())
                together = True
                continue
            backoff.reset()
            due = await self._next(time.monotonic() + jitter_delay(self._interval_s, together=together))
            together = False

    async def _next(self, due: float) -> float:
        """When the next report should go: at `due`, or when there is news."""
        if self._news.is_set():
            return time.monotonic()
        left_s = due - time.monotonic()
        if left_s <= 0:
            return time.monotonic()
        waker = asyncio.get_running_loop().call_later(left_s, self._news.set)
        await self._news.wait()
        waker.cancel()
        return min(due, time.monotonic())

    async def _report(self, due: float) -> None:
        """One report. `due` is when it should go: who is late itself must not make the controller look fast.

        Raises:
            Unreachable: it was not taken.
        """
        changes = tuple(self._changes)
        for change in changes:
            self._outcome.told(change.finding)
        self._seq += 1
        body = self._words.report(self._seq, changes, tuple(self._active.values()))
        answer = await self._asked(build_request("POST", f"/v1/nodes/{self.name}/report", token_of(self.name), body))
        if answer.status != 200:
            self._outcome.failed[f"report {answer.status}"] += 1
            raise ControllerUnreachable(str(answer.status), answer.retry_after_s)
        self._outcome.answered("news" if changes else "report", due)
        acked = decode_message(answer.body, ReportReply).acked_seq
        for change in changes:
            if change.seq <= acked:
                self._changes.remove(change)
                self._outcome.acknowledged(change.finding)

    async def _asked(self, whole: bytes) -> Answer:
        try:
            return await asyncio.wait_for(self._ask(whole), ANSWER_WITHIN_S)
        except asyncio.TimeoutError:
            self._link.close()
            self._outcome.failed["report without an answer"] += 1
            raise ControllerUnreachable("no answer") from None
        except OSError as error:
            self._link.close()
            self._outcome.failed[f"report {type(error).__name__}"] += 1
            raise ControllerUnreachable(str(error)) from error

    async def _ask(self, whole: bytes) -> Answer:
        if not self._link.is_open:
            self._link = await open_link(self._address, self._balancer.port, self._balancer.trust)
        return await self._link.ask(whole)
