"""The findings of this node: which are active, and what has changed since the last durable write. Pure.

Checks return facts (`Raise`, `Clear`); the ledger turns them into findings. It guarantees three things: one fault is
one finding however often it repeats, an event is cleared only by a verification, and its memory is bounded. Every
finding can be stored: invalid text in user-chosen names is escaped here, for all checks.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from healthd.findings.event_counters import EventCounters
from healthd.findings.facts import Clear, Fact, LevelFact, Raise, make_gpu_component, make_writable
from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.wire import Gpu

ACTIVE_MAX = 4000  # sixteen GPUs with 187 kinds of Xid each, and more; a report of so many must fit into one message
NOTES_MAX = 500  # remembered info findings, to count their repeats
NOTE_REPEATS_S = 300.0
OUTLIVES_BOOT = ("preflight",)
CHANGED_MAX = 10_000  # while nothing can be written; info findings go first

Key = tuple[str, str, str, bool]


class FindingLedger:
    """Turns facts into findings. `changed` is what the database lacks; `urgent` what it must get at once.

    `events` counts what happened since this process started, including what is no longer a finding.
    """

    def __init__(self, node: str, boot_id: str, findings: Iterable[Finding] = ()) -> None:
        self._node = node
        self._boot_id = boot_id
        self._active = {_make_finding_key(f.check, f.code, f.component, f.injected): f for f in findings if f.active}
        self._notes: dict[Key, Finding] = {}
        self.events = EventCounters()
        self.changed: dict[str, Finding] = {}
        self.urgent = False

    @property
    def active(self) -> tuple[Finding, ...]:
        """Return all active findings, oldest first."""
        return tuple(self._active.values())

    def apply(self, facts: Iterable[Fact]) -> None:
        """Apply a check's facts."""
        for fact in map(make_writable, facts):
            if isinstance(fact, Clear):
                self._clear(fact)
            else:
                self._raise(fact)

    def apply_levels(
        self,
        check: str,
        facts: Iterable[LevelFact],
        at: float,
        by: str,
        *,
        about: Component | None = None,
        injected: bool = False,
    ) -> None:
        """Apply all current facts of `check` (`about` one component, if given).

        A level of its that is neither in `facts` nor unknown has ended, as `by` showed.
        """
        held = set()
        for fact in map(make_writable, facts):
            if isinstance(fact, Raise):
                self._raise(fact)
            held.add(_make_finding_key(fact.check, fact.code, fact.component, injected))
        for key, finding in list(self._active.items()):
            if key in held or finding.check != check or not finding.level or finding.injected is not injected:
                continue
            if about is None or finding.component == about:
                self._end(key, finding.cleared(at, by))

    def prove(self, at: float, by: str, gpu: str = "", until: float | None = None) -> None:
        """Clear the events of the node, or of the GPU of that UUID or PCI address, after a verification.

        Events last seen after `until`, when the verification began, stay.
        """
        for key, finding in list(self._active.items()):
            if finding.level or (until is not None and finding.last_seen > until):
                continue
            if not gpu or gpu in (finding.component.name, finding.component.pci):
                self._end(key, finding.cleared(at, by))

    def begin_boot(self, at: float) -> None:
        """Clear events of earlier boots, as the hardware has been reinitialised since.

        Test results stay: a restart is no measurement.
        """
        for key, finding in list(self._active.items()):
            if (
                finding.check not in OUTLIVES_BOOT
                and not finding.level
                and finding.boot_id
                and finding.boot_id != self._boot_id
            ):
                self._end(key, finding.cleared(at, f"boot {self._boot_id}"))

    def name_gpus(self, gpus: Iterable[Gpu]) -> None:
        """Add UUID and index to GPUs known only by address, once the inventory is known."""
        by_pci = {gpu.pci: gpu for gpu in gpus}
        for key, finding in list(self._active.items()):
            gpu = by_pci.get(finding.component.pci)
            if gpu is not None and finding.component.kind is ComponentKind.GPU and not finding.component.name:
                self._store(key, replace(finding, component=make_gpu_component(gpu)))
                self.urgent = True

    def mark_submitted(self) -> None:
        """Record that all changes were handed over to be written."""
        self.changed = {}
        self.urgent = False

    def take_back(self, findings: Iterable[Finding], *, urgent: bool) -> None:
        """Take back changes that were not written; newer changes win."""
        self.changed = {finding.id: finding for finding in findings} | self.changed
        self.urgent = self.urgent or urgent

    def forget_written(self) -> None:
        """Mark every active finding to be written again, because the database was lost."""
        self.changed = {finding.id: finding for finding in self._active.values()} | self.changed
        self.urgent = True

    def _raise(self, fact: Raise) -> None:
        if fact.event:
            self.events.add(fact)
        key = _make_finding_key(fact.check, fact.code, fact.component, fact.injected)
        known = self._active.get(key)
        if known is not None and fact.severity is Severity.INFO and not fact.event:
            self._end(key, known.cleared(fact.at, fact.summary))  # a level that fell to info
        elif known is not None:
            self._raise_again(key, known, fact)
        elif fact.severity is Severity.INFO:
            self._note(key, fact)
        elif len(self._active) >= ACTIVE_MAX:
            self._overflow(fact)
        else:
            self._begin(key, self._finding(fact, active=True))

    def _overflow(self, fact: Raise) -> None:
        stand_in = _make_overflow_fact(fact)
        key = _make_finding_key(stand_in.check, stand_in.code, stand_in.component, False)
        known = self._active.get(key)
        if known is None:
            self._begin(key, self._finding(stand_in, active=True))
        else:
            self._store(key, known.seen_again(fact.at))

    def _raise_again(self, key: Key, known: Finding, fact: Raise) -> None:
        worse = fact.severity.rank > known.severity.rank
        if fact.event:
            known = known.seen_again(fact.at)
        elif not worse and fact.severity is known.severity:
            return
        if worse or fact.outweighs or not fact.event:
            known = _update_severity(known, fact)
            self.urgent = True
        self._store(key, known)

    def _note(self, key: Key, fact: Raise) -> None:
        """Record an info finding, never active. A repeat within minutes counts; a later one is a new finding."""
        known = self._notes.pop(key, None)
        if known is not None and fact.at - known.last_seen <= NOTE_REPEATS_S:
            note = known.seen_again(fact.at)
        else:
            note = self._finding(fact, active=False)
        self._notes[key] = self.changed[note.id] = note
        if len(self._notes) > NOTES_MAX:
            del self._notes[next(iter(self._notes))]
        if len(self.changed) > CHANGED_MAX:
            del self.changed[next(iter(self.changed))]

    def _clear(self, fact: Clear) -> None:
        for injected in (False, True):
            key = _make_finding_key(fact.check, fact.code, fact.component, injected)
            known = self._active.get(key)
            if known is not None:
                self._end(key, known.cleared(fact.at, fact.by))

    def _finding(self, fact: Raise, *, active: bool) -> Finding:
        origin = fact.origin or f"{self._boot_id}:{fact.check}:{fact.at:.6f}"
        return Finding(
            id=finding_id(self._node, fact.check, fact.code, fact.component, origin),
            node=self._node,
            check=fact.check,
            code=fact.code,
            component=fact.component,
            severity=fact.severity,
            summary=fact.summary,
            first_seen=fact.at,
            last_seen=fact.at,
            origin=origin,
            boot_id=self._boot_id,
            active=active,
            injected=fact.injected,
            level=not (fact.event or fact.provable),
            evidence=fact.evidence,
        )

    def _begin(self, key: Key, finding: Finding) -> None:
        self._store(key, finding)
        self.urgent = True

    def _end(self, key: Key, finding: Finding) -> None:
        del self._active[key]
        self.changed[finding.id] = finding
        self.urgent = True

    def _store(self, key: Key, finding: Finding) -> None:
        self._active[key] = self.changed[finding.id] = finding


def _make_finding_key(check: str, code: str, component: Component, injected: bool) -> Key:  # noqa: FBT001 - part of the key
    """Return a finding's key. A GPU's is its address, which kernel and NVML both know, even before its UUID."""
    place = component.pci if component.kind is ComponentKind.GPU and component.pci else component.key
    return check, code, place, injected


def _update_severity(finding: Finding, fact: Raise) -> Finding:
    return replace(finding, severity=fact.severity, summary=fact.summary, evidence=fact.evidence)


def _make_overflow_fact(fact: Raise) -> Raise:
    """Return the fact that counts all new facts beyond the limit, so that none is dropped silently."""
    return Raise(
        check="ledger",
        code="overflow",
        component=Component(ComponentKind.AGENT, name="healthd"),
        severity=Severity.ERROR,
        summary=f"more than {ACTIVE_MAX} findings are active at once; further findings are counted but not stored",
        at=fact.at,
        event=True,
        origin=f"overflow:{fact.at:.6f}",
        evidence={"first": f"{fact.check}/{fact.code} on {fact.component}"},
    )
