"""Host memory that returned wrong data or soon may: the module is named."""

from __future__ import annotations

import msgspec

from healthd.collectors.edac import Dimm, EdacSample
from healthd.findings.facts import LevelFact, Moment, judge_level
from healthd.findings.hysteresis import Dwell, Growth
from vocabulary.finding import Severity
from vocabulary.identity import Component, ComponentKind

CHECK = "edac"


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `edac` of the thresholds."""

    corrected_in_window: float
    window_s: float
    clear_after_s: float


class EdacCheck:
    """Remembers the rate of corrected errors of each module."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._corrected = Growth(limits.window_s)
        self._storm = Dwell(0.0, limits.clear_after_s)

    def judge(self, sample: EdacSample, now: Moment) -> list[LevelFact]:
        """Return facts for uncorrected errors since boot and for a storm of corrected ones."""
        return [fact for dimm in sample.dimms for fact in (*self._uncorrected(dimm, now), *self._storming(dimm, now))]

    def _uncorrected(self, dimm: Dimm, now: Moment) -> list[LevelFact]:
        count = dimm.uncorrected
        return judge_level(
            None if count is None else count > 0,
            now,
            (CHECK, "uncorrected"),
            _make_dimm_component(dimm),
            f"{_describe_dimm(dimm)} has had uncorrected memory errors since boot: data was lost",
            severity=Severity.ERROR,
            evidence={"errors": count},
        )

    def _storming(self, dimm: Dimm, now: Moment) -> list[LevelFact]:
        key = (dimm.controller, dimm.dimm)
        growth = self._corrected.add(key, dimm.corrected, now.monotonic)
        bad = None if growth is None else growth >= self._limits.corrected_in_window
        return judge_level(
            self._storm.judge(key, bad, now.monotonic),
            now,
            (CHECK, "corrected"),
            _make_dimm_component(dimm),
            f"{_describe_dimm(dimm)}: many corrected memory errors; it may fail soon, and each one costs time",
            evidence={"errors": growth, "window_s": self._limits.window_s},
        )


def _describe_dimm(dimm: Dimm) -> str:
    place = "/".join(word for word in (dimm.controller, dimm.dimm) if word)
    return f"memory module {dimm.label or place}" if dimm.dimm else f"memory controller {dimm.controller}"


def _make_dimm_component(dimm: Dimm) -> Component:
    return Component(ComponentKind.HOST, name="memory " + "/".join(w for w in (dimm.controller, dimm.dimm) if w))
