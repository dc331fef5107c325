"""Has hardware counters read around each test of devices, in the node's process and with a time limit, and judges them.

This process calls no driver. One reading serves as the end of a test and the beginning of the next, so that no error falls
between them; the whole run is judged once more from its first reading.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import msgspec

from preflight.execution.counter_results import TEST, CounterConclusions
from preflight.execution.worker_outcomes import build_worker_results
from preflight.execution.worker_pool import WorkerPool
from preflight.execution.worker_requests import WorkerRequest, await_answers, conclude_request
from preflight.expectations.counter_changes import (
    CounterFinding,
    describe_unsupported,
    judge_counters,
    judge_error_states,
    list_counter_changes,
)
from preflight.expectations.xid_findings import judge_gpu_lines, judge_node_lines
from preflight.host.counter_records import CounterReading, HardwareCounters
from preflight.plan import Plan
from preflight.results import Outcome
from preflight.worker_messages import CounterRequest
from vocabulary.clock import Clock
from vocabulary.fault_catalogue.catalogue import Catalogue
from vocabulary.fault_catalogue.catalogue_file import load_catalogue

FIRST_READING_LIMIT_S = 60.0  # the node's process loads the driver
HUNG_READINGS_MAX = 2  # of a run: then the driver itself hangs, and is not asked for the other cards
READING_LIMIT_S = 10.0  # a reading takes milliseconds; a driver that is busy with a reset takes seconds


class MomentOfCounters(msgspec.Struct, frozen=True):
    """All cards at one moment, by UUID, and the kernel's lines since the reading before."""

    at: float
    cards: dict[str, HardwareCounters]
    lines: tuple[str, ...] = ()


class CounterWatch:
    """The readings of one run. Does nothing if no device has a card, as on a host without GPUs."""

    def __init__(self, pool: WorkerPool, plan: Plan, clock: Clock) -> None:
        self._pool, self._plan, self._clock = pool, plan, clock
        self._first: MomentOfCounters | None = None
        self._last: MomentOfCounters | None = None
        self._position: int | None = None
        self._hung: dict[str, CounterFinding] = {}  # by card, which is never asked again
        self._hung_readings = self._tests = 0
        self._unread, self._unreadable_log = "", ""
        self._every_line: list[str] = []
        self._reported: set[tuple[str, str, str]] = set()  # device, counter, location: findings of a test
        self._said: set[tuple[str, str]] = set()
        self.conclusions: list[CounterConclusions] = []

    def begin_round(self) -> None:
        """Forget the conclusions of the round before."""
        self.conclusions.clear()
        self._reported.clear()

    def read(self) -> None:
        """Read all cards now. A reading that does not end is reported at the end of the round; its card is left out."""
        cards = self._cards()
        if not cards:
            return
        found: dict[str, HardwareCounters] = {}
        lines: tuple[str, ...] = ()
        self._unread = "too many readings did not end"
        while self._hung_readings < HUNG_READINGS_MAX:
            asked = [card for card in dict.fromkeys(cards.values()) if card not in self._hung]
            reading = self._request(asked)
            if reading is None:
                continue  # a card hung: ask the others
            lines, self._position = reading.kernel_log.lines, reading.kernel_log.position
            self._unread, self._unreadable_log = reading.failure, reading.kernel_log.unreadable
            found = {counters.uuid: counters for counters in reading.gpus}
            break
        failure = self._unread or "the driver gave no counters"
        for card in cards.values():
            found.setdefault(
                card, HardwareCounters(uuid=card, failure=self._hung[card].words if card in self._hung else failure)
            )
        self._every_line += lines
        self._last = MomentOfCounters(self._clock.monotonic(), found, lines)
        self._first = self._first or self._last

    def conclude(self, test: str) -> tuple[CounterConclusions, ...]:
        """Read again after `test`, and judge what changed since the last reading."""
        before = self._last
        self._tests += 1
        self.read()
        if before is None or self._last is None or self._last is before:
            return ()
        found = self._compare(test, before, self._last, self._last.lines)
        for about in found:
            self._reported |= {(about.device, each.name, each.where) for each in about.findings}
        self.conclusions += found
        return found

    def conclude_round(self) -> tuple[CounterConclusions, ...]:
        """What the tests of this round have not reported: between them, over the whole run, and hung readings."""
        self.read()
        if self._first is None or self._last is None:
            return ()
        found = [
            msgspec.structs.replace(about, findings=self._unreported(about), changes=())
            for about in self._compare(TEST, self._first, self._last, self._every_line)
        ]
        states = () if any(spec.test == "gpu_state" for spec in self._plan.specs) else self._judge_first_states()
        hung = [
            CounterConclusions(test=TEST, device=device, findings=(self._hung[card],))
            for device, card in self._cards().items()
            if card in self._hung
        ]
        found = [*found, *states, *hung]
        self.conclusions += found
        return tuple(found)

    def _cards(self) -> dict[str, str]:
        return {member.seat.name: member.seat.card for member in self._pool.members if member.seat.card}

    def _request(self, cards: Sequence[str]) -> CounterReading | None:
        """One reading; None if it did not end, or its process did."""
        limit_s = READING_LIMIT_S if self._last else FIRST_READING_LIMIT_S
        turn = WorkerRequest(self._pool.node(), CounterRequest(tuple(cards), self._position), limit_s, self._clock)
        await_answers([turn], self._clock)
        if isinstance(turn.answer, CounterReading):
            return turn.answer
        why = build_worker_results(TEST, conclude_request(turn, self._clock))[-1]
        self._pool.drop_node()
        self._hung_readings += 1
        words = f"reading the hardware counters: {why.reason}"
        blamed = [card for card in cards if card in turn.doing] or list(cards)
        self._hung |= dict.fromkeys(blamed, CounterFinding(outcome=why.outcome, words=words, name="unread"))
        return None

    def _compare(
        self, test: str, before: MomentOfCounters, after: MomentOfCounters, lines: Iterable[str]
    ) -> tuple[CounterConclusions, ...]:
        seconds, lines = after.at - before.at, tuple(lines)
        tests = max(1, self._tests) if test == TEST else 1
        found = []
        for device, card in self._cards().items():
            was, now = before.cards[card], after.cards[card]
            findings = judge_counters(was, now, test=test, level=self._plan.level, seconds=seconds, tests=tests)
            if lines:
                findings += judge_gpu_lines(lines, now.address or was.address, read_catalogue())
            findings += self._remark_once(device, now)
            changes = list_counter_changes(was, now)
            found.append(CounterConclusions(test=test, device=device, findings=findings, changes=changes))
        if lines and (of_node := judge_node_lines(lines, read_catalogue())):
            found.append(CounterConclusions(test=test, device="", findings=of_node))
        return tuple(found)

    def _remark_once(self, device: str, now: HardwareCounters) -> tuple[CounterFinding, ...]:
        """What the driver or the kernel log does not say: no reason to doubt a result, but to be known once."""
        log = f"the kernel log could not be read ({self._unreadable_log}): Xids remain unknown"
        remarks = {(device, describe_unsupported(now)), ("", log if self._unreadable_log else "")}
        new = sorted(remark for remark in remarks - self._said if remark[1])
        self._said |= remarks
        return tuple(CounterFinding(outcome=Outcome.PASS, words=words, name="unknown") for _, words in new)

    def _unreported(self, about: CounterConclusions) -> tuple[CounterFinding, ...]:
        """The findings that no test has reported; remarks are the tests' own."""
        return tuple(
            finding
            for finding in about.findings
            if finding.outcome is not Outcome.PASS and (about.device, finding.name, finding.where) not in self._reported
        )

    def _judge_first_states(self) -> list[CounterConclusions]:
        """Error states from before the run, for a plan without the test that reports them."""
        first = self._first
        if first is None:
            return []
        return [
            CounterConclusions(test=TEST, device=device, findings=judge_error_states(first.cards[card]))
            for device, card in self._cards().items()
        ]


@functools.cache
def read_catalogue() -> Catalogue:
    """The shipped catalogue of Xids, loaded only if the driver wrote a line."""
    return load_catalogue()
