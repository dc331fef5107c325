"""Turns readings of sources into findings: each source's check, and a finding about the source itself."""

from __future__ import annotations

from collections.abc import Mapping

from healthd.findings.facts import Moment, Raise, make_check_failure
from healthd.findings.finding_ledger import FindingLedger
from healthd.samples.source import SourceReading, SourceState
from healthd.source_monitoring.source_registry import Check, Source, map_sources_by_name
from vocabulary.finding import Severity
from vocabulary.identity import Component, ComponentKind

_TROUBLE = {SourceState.FAILING: "cannot be read", SourceState.HUNG: "hangs"}


class SourceMonitor:
    """`latest` is the last reading of each source; without a sample while the source fails.

    Existing sources that are not among `sources` are disabled.
    """

    def __init__(self, ledger: FindingLedger, sources: Mapping[str, tuple[Source, Check]]) -> None:
        self._ledger = ledger
        self._sources = dict(sources)
        self._seen: set[str] = set()
        self.latest = {
            name: SourceReading(source=name, state=SourceState.WAITING if name in sources else SourceState.OFF, at=0.0)
            for name in map_sources_by_name()
        }

    def take(self, reading: SourceReading, now: Moment) -> None:
        """Judge one reading."""
        self.latest[reading.source] = reading
        trouble = self._judge_source(reading, now)
        if reading.state is SourceState.PRESENT and reading.source in self._sources:
            source, check = self._sources[reading.source]
            try:
                facts = check.judge(reading.sample, now)
            except Exception as error:  # noqa: BLE001 - one check's mistake must not blind the others
                self._ledger.apply([make_check_failure(source.check_name, error, now.wall)])
            else:
                self._ledger.apply_levels(source.check_name, facts, now.wall, f"{source.name}: no longer so")
        about = _make_source_component(reading.source)
        for injected in (False, True):
            facts = [fact for fact in trouble if fact.injected is injected]
            self._ledger.apply_levels("source", facts, now.wall, "it is read again", about=about, injected=injected)

    def _judge_source(self, reading: SourceReading, now: Moment) -> list[Raise]:
        if reading.state is SourceState.PRESENT:
            self._seen.add(reading.source)
        if words := _TROUBLE.get(reading.state):
            text = f"{reading.source} {words}: {reading.reason}"
            return [_raise_source_fact(reading.source, reading.state.value, text, now, injected=reading.injected)]
        if reading.state is SourceState.ABSENT and reading.source in self._seen:
            return [
                _raise_source_fact(
                    reading.source, "vanished", f"{reading.source} has disappeared: {reading.reason}", now
                )
            ]
        return []


def _raise_source_fact(source: str, code: str, summary: str, now: Moment, *, injected: bool = False) -> Raise:
    return Raise(
        check="source",
        code=code,
        component=_make_source_component(source),
        severity=Severity.WARNING,
        summary=summary[:300],
        at=now.wall,
        injected=injected,
    )


def _make_source_component(source: str) -> Component:
    return Component(ComponentKind.AGENT, name=source)
