"""Decides on inputs in batches and writes each batch in one transaction before any effect.

If the database is unavailable, the batch is retried until it succeeds. If the database rejects it permanently (a value
that no column holds), the writer finds the input by halving the batch, and the part of a report or scheduler answer by
single findings and nodes. The rejected part goes into a table of its own, with an audit event: one finding must not
block all others. If even that fails, the database is at fault and is retried like an unavailable one.
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
TICK_PAUSE_S = 60.0  # the time until the clock alone may again lead to something that is refused


class WriterStopped(Exception):
    """The writer was asked to stop before the batch could be written."""


class _InputRefused(Exception):
    """The database rejects this input permanently."""


class BatchWriter:
    """Owns the state and alone changes it.

    One thread uses it; any thread may read `trouble`, `set_aside` and `settings`.
    """

    def __init__(self, journal: Journal, epoch: int, settings: DecisionSettings, stopping: threading.Event) -> None:
        """Load the state. `stopping`: give up what cannot be written now."""
        self.settings = settings
        self.state = journal.load()
        self.trouble = ""  # why nothing can be written now
        self.set_aside = journal.count_set_aside()  # inputs set aside for operators
        self.policies: dict[str, Policy] = {}  # by digest: those that a `PolicyChanged` may name
        self.number = 0
        self.tally = TermCounters()
        self.tally.expect(settings.policy.by_name)
        self._journal = journal
        self._epoch = epoch
        self._stopping = stopping
        self._no_tick_before = float("-inf")

    def write(self, items: Sequence[AnyInput]) -> bool:
        """Decide on inputs in order, and write them with their results. False if there was nothing to write.

        Raises:
            StoreError: another leader has taken over.
            WriterStopped: asked to stop first; nothing is written.
        """
        items = [item for item in items if not isinstance(item, Tick) or item.at >= self._no_tick_before]
        try:
            return self._fold(items)
        except _InputRefused as error:
            log.error("the database rejects a batch of %d inputs: %s", len(items), error)
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
            # A bug in a decision must not stop the controller; the input is in the journal and can be replayed.
            log.exception(
                "deciding on %s failed; this is a bug, please report it with the journal", type(item).__name__
            )
            self.state.note(item.at, "bug", f"deciding on {type(item).__name__} failed: {error!r}")

    def _insist(self, ask: Callable[[], T]) -> T:
        """Retry until the database answers.

        Raises:
            _InputRefused: it answers, and rejects this permanently.
            StoreError, WriterStopped: as in `write`.
        """
        pause = RETRY_S
        while True:
            try:
                answer = ask()
            except StoreError:
                raise
            except Exception as error:
                if is_corruption(error):  # a retry does not repair it
                    raise StoreError(f"the database is damaged: {driver_message(error)}") from error
                if is_permanent_refusal(error):
                    raise _InputRefused(str(error).partition("\n")[0]) from error
                pause = self._wait(error, pause)
            else:
                self.trouble = ""
                return answer

    def _wait(self, error: Exception, pause: float) -> float:
        """Report the problem and wait before the next attempt. Returns the pause after that."""
        self.trouble = f"the database cannot be written: {driver_message(error)}; until it can, no report is acknowledged and no action starts"
        log.error("%s", self.trouble)
        if self._stopping.wait(pause):
            raise WriterStopped
        return min(2 * pause, RETRY_MAX_S)

    def _go_back(self) -> None:
        """Restore the last written state; the scheduler's answers exist in memory only and are kept."""
        before, self.state = self.state, self._insist(self._journal.load)
        self.state.topology = before.topology
        for hold in before.holds.values():
            self.state.put_hold(hold)

    def _write_apart(self, item: AnyInput) -> bool:
        """Write the parts of a rejected input one by one, so that only the bad ones are lost. False if it has no parts."""
        if isinstance(item, HoldsObserved) and len(item.holds) > 1:
            self.write([replace(item, holds=(hold,)) for hold in item.holds])
            return True
        if not isinstance(item, FindingsReported) or self._acts(item) < 2:
            return False
        try:
            self._fold([replace(item, changes=(), active=None)])
        except _InputRefused:  # no finding is to blame
            self._go_back()
            return False
        asserted = item.active or ()
        unknown = [f for f in asserted if f.id not in self.state.findings and f not in item.changes]
        self.write([replace(item, changes=(finding,), active=None) for finding in (*item.changes, *unknown)])
        if item.active is None:
            return True
        for finding in asserted:
            known = self.state.findings.get(finding.id)
            if known is not None and not known.active:  # it counts again only as asserted now
                self.write([replace(item, changes=(), active=(*self._active(item.node), finding))])
        ids = {finding.id for finding in asserted}
        self.write([replace(item, changes=(), active=tuple(f for f in self._active(item.node) if f.id in ids))])
        return True

    def _acts(self, report: FindingsReported) -> int:
        """Return how many parts a report has: changes, active findings not known as active, and the rest, cleared."""
        known = {finding.id for finding in self._active(report.node)}
        asserted = known if report.active is None else {finding.id for finding in report.active}
        return len(report.changes) + len(asserted - known) + bool(known - asserted)

    def _active(self, node: str) -> list[Finding]:
        """Return what the node was last known to assert."""
        return [finding for finding in self.state.active_on(node) if not is_concluded(finding)]

    def _write_alone(self, item: AnyInput) -> None:
        """Write one rejected input alone, or set it aside."""
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
            except _InputRefused as error:  # the input is not to blame
                pause = self._wait(error, pause)
            else:
                return

    def _put_aside(self, item: AnyInput, why: str) -> None:
        node = str(getattr(item, "node", ""))
        of = f" of {node[:NAMED_MAX]!a}" if node else ""
        why = why.encode("ascii", "backslashreplace").decode()  # it may repeat what cannot be written
        text = f"the results of {type(item).__name__}{of} cannot be written, so it was set aside: {why}"
        event = AuditEvent(at=item.at, kind="input_set_aside", text=text, node=node if node in self.state.nodes else "")
        self.number += 1
        self._insist(lambda: self._journal.set_aside(item, why, event, self._epoch, self.number))
        self.set_aside += 1
        if isinstance(item, Tick):
            self._no_tick_before = item.at + TICK_PAUSE_S
        log.critical("%s; this is a bug, please report it", text)
