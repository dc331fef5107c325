"""Decide on inputs a batch at a time and write each batch whole, durably, before anything comes of it.

What the database cannot take now is handed in again until it can. What it will never take (a value that no column holds) is
found by halving the batch, and what a node or the scheduler said by its single findings and nodes. It is set aside in a table of
its own, with a line in the audit log: one finding must not keep all others from being written. If the database does not even take
that, the fault is its own, and it is asked again like one that is away.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from remediator.decisions.decision_settings import DecisionSettings
from remediator.decisions.policy import Policy
from remediator.engine.term_counters import TermCounters
from remediator.model.detector_origin import is_concluded
from remediator.model.journal_records import AuditEvent
from remediator.model.pipeline_inputs import AnyInput, FindingsReported, HoldsObserved, PolicyChanged, Tick
from remediator.pipeline import apply_input
from remediator.store.corruption_check import is_corruption
from remediator.store.database import driver_message, is_permanent_refusal
from remediator.store.journal import Journal, StoreError
from vocabulary.finding import Finding

log = logging.getLogger(__name__)
T = TypeVar("T")

RETRY_S, RETRY_MAX_S = 0.2, 5.0
NAMED_MAX = 80
TICK_PAUSE_S = 60.0  # time alone leads to something that is refused: so long it does not pass


class WriterStopped(Exception):
    """We were told to stop before the batch could be written."""


class _InputRefused(Exception):
    """The database will not take it, however often it is asked."""


class BatchWriter:
    """Owns the state and is the only one that changes it. Used by one thread; `trouble`, `set_aside` and `settings` by any."""

    def __init__(self, journal: Journal, epoch: int, settings: DecisionSettings, stopping: threading.Event) -> None:
        """Load the state. `stopping`: give up what cannot be written now."""
        self.settings = settings
        self.state = journal.load()
        self.trouble = ""  # why nothing can be written at the moment
        self.set_aside = journal.count_set_aside()  # inputs that wait for people to look at them
        self.policies: dict[str, Policy] = {}  # by digest: those that a `PolicyChanged` may name
        self.number = 0
        self.tally = TermCounters()
        self.tally.expect(settings.policy.by_name)
        self._journal = journal
        self._epoch = epoch
        self._stopping = stopping
        self._no_tick_before = float("-inf")

    def write(self, items: Sequence[AnyInput]) -> bool:
        """Decide on inputs in their order, and write them with what they led to. False if there was nothing to write.

        Raises:
            StoreError: another leader has taken over. Stopped: told to stop first; nothing of it is written.
        """
        items = [item for item in items if not isinstance(item, Tick) or item.at >= self._no_tick_before]
        try:
            return self._fold(items)
        except _InputRefused as error:
            log.error("the database refuses a batch of %d inputs: %s", len(items), error)
        self._go_back()
        if len(items) == 1:
            if not self._write_apart(items[0]):
                self._write_alone(items[0])
        else:
            for part in (items[: len(items) // 2], items[len(items) // 2 :]):
                self.write(part)
        return True

    def _fold(self, items: Sequence[AnyInput]) -> bool:
        for item in items:
            self._handle(item)
        changes = self.state.take_changes()
        worth_keeping = [item for item in items if changes or not isinstance(item, Tick)]
        if not worth_keeping:
            return False
        self.number += 1
        self._insist(lambda: self._journal.commit(worth_keeping, changes, self._epoch, self.number))
        self.tally.count(changes)
        return True

    def _handle(self, item: AnyInput) -> None:
        if isinstance(item, PolicyChanged):
            self.settings = replace(self.settings, policy=self.policies[item.digest])
            self.tally.expect(self.settings.policy.by_name)
        try:
            apply_input(self.state, item, self.settings)
        except Exception as error:
            # A bug in a decision must not stop the centre; the input is in the journal and can be replayed.
            log.exception(
                "deciding on %s failed; this is a bug, please report it with the journal", type(item).__name__
            )
            self.state.note(item.at, "bug", f"deciding on {type(item).__name__} failed: {error!r}")

    def _insist(self, ask: Callable[[], T]) -> T:
        """Ask the database until it answers.

        Raises:
            _Refused: it does, and will not take this. StoreError, Stopped: as `write`.
        """
        pause = RETRY_S
        while True:
            try:
                answer = ask()
            except StoreError:
                raise
            except Exception as error:
                if is_corruption(error):  # asking again mends nothing
                    raise StoreError(f"the database is damaged: {driver_message(error)}") from error
                if is_permanent_refusal(error):
                    raise _InputRefused(str(error).partition("\n")[0]) from error
                pause = self._wait(error, pause)
            else:
                self.trouble = ""
                return answer

    def _wait(self, error: Exception, pause: float) -> float:
        """Say what is wrong and wait before the next attempt. Returns the pause after that."""
        self.trouble = f"the database cannot be written: {driver_message(error)}; nothing is acknowledged or acted upon until it can"
        log.error("%s", self.trouble)
        if self._stopping.wait(pause):
            raise WriterStopped
        return min(2 * pause, RETRY_MAX_S)

    def _go_back(self) -> None:
        """To the state of the last batch that was written; what the scheduler and others said of nodes is kept in memory only."""
        before, self.state = self.state, self._insist(self._journal.load)
        self.state.topology = before.topology
        for hold in before.holds.values():
            self.state.put_hold(hold)

    def _write_apart(self, item: AnyInput) -> bool:
        """Write piece by piece what was refused whole, so that what is refused of it hides nothing else. False: it has no pieces."""
        if isinstance(item, HoldsObserved) and len(item.holds) > 1:
            self.write([replace(item, holds=(hold,)) for hold in item.holds])
            return True
        if not isinstance(item, FindingsReported) or self._acts(item) < 2:
            return False
        try:
            self._fold([replace(item, changes=(), active=None)])
        except _InputRefused:  # then no finding is to blame
            self._go_back()
            return False
        asserted = item.active or ()
        unknown = [f for f in asserted if f.id not in self.state.findings and f not in item.changes]
        self.write([replace(item, changes=(finding,), active=None) for finding in (*item.changes, *unknown)])
        if item.active is None:
            return True
        for finding in asserted:
            known = self.state.findings.get(finding.id)
            if known is not None and not known.active:  # only as asserted now it counts again
                self.write([replace(item, changes=(), active=(*self._active(item.node), finding))])
        ids = {finding.id for finding in asserted}
        self.write([replace(item, changes=(), active=tuple(f for f in self._active(item.node) if f.id in ids))])
        return True

    def _acts(self, report: FindingsReported) -> int:
        """How many pieces a report has: changes, findings that are asserted and not known as active, and the rest, cleared."""
        known = {finding.id for finding in self._active(report.node)}
        asserted = known if report.active is None else {finding.id for finding in report.active}
        return len(report.changes) + len(asserted - known) + bool(known - asserted)

    def _active(self, node: str) -> list[Finding]:
        """What the node itself was last known to hold true."""
        return [finding for finding in self.state.active_on(node) if not is_concluded(finding)]

    def _write_alone(self, item: AnyInput) -> None:
        """Write one input that was refused, or set it aside."""
        pause = RETRY_S
        while True:
            try:
                self._fold([item])
            except _InputRefused as error:
                why = str(error)
            else:
                return
            self._go_back()
            try:
                self._put_aside(item, why)
            except _InputRefused as error:  # then it is not the input's fault
                pause = self._wait(error, pause)
            else:
                return

    def _put_aside(self, item: AnyInput, why: str) -> None:
        node = str(getattr(item, "node", ""))
        of = f" of {node[:NAMED_MAX]!a}" if node else ""
        why = why.encode("ascii", "backslashreplace").decode()  # it may repeat what cannot be written
        text = f"what {type(item).__name__}{of} led to cannot be written, so it was set aside: {why}"
        event = AuditEvent(at=item.at, kind="input_set_aside", text=text, node=node if node in self.state.nodes else "")
        self.number += 1
        self._insist(lambda: self._journal.set_aside(item, why, event, self._epoch, self.number))
        self.set_aside += 1
        if isinstance(item, Tick):
            self._no_tick_before = item.at + TICK_PAUSE_S
        log.critical("%s; this is a bug, please report it", text)
