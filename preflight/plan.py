"""Which tests a level runs, in which order, and how long each may take. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec


class PlanError(ValueError):
    """The request makes no sense. The text names the word and lists the valid ones."""


class Spec(msgspec.Struct, frozen=True):
    """One test. Tests of one `part` share a process, so that torch is imported once.

    `watchdog_s` is the longest a healthy machine may take for it; `faults` are what `--inject` can do to it.
    """

    test: str
    part: str
    watchdog_s: float
    faults: tuple[str, ...]


class Plan(msgspec.Struct, frozen=True):
    """What to run, in order; `faults` maps a test to the fault to commit in it."""

    level: str
    specs: tuple[Spec, ...]
    faults: Mapping[str, str]


START_WATCHDOG_S = 120.0  # of a process, imports included: torch on a cold disk takes a minute

SPECS = {
    spec.test: spec
    for spec in (
        Spec("gpu_state", "driver", 15.0, ("remap_pending", "lost", "hang")),
        Spec("memory_pattern", "torch", 120.0, ("bit_flip", "hang")),
        Spec("matmul_repeat", "torch", 120.0, ("one_output", "all_outputs", "nan", "hang")),
    )
}
_ALL = tuple(SPECS)
LEVELS = {"gate": _ALL, "standard": _ALL, "burn-in": _ALL}
# How long a level goes on: its tests run round after round, so that heat and chance get their turn. The first round that
# is no pass ends it.
LASTS_S = {"gate": 0.0, "standard": 120.0, "burn-in": 1800.0}


def plan(
    level: str,
    only: Sequence[str] = (),
    inject: Sequence[str] = (),
    watchdogs: Mapping[str, float] | None = None,
) -> Plan:
    """The plan for `level`; `only` leaves the other tests out, `inject` holds ``TEST:FAULT`` words.

    `watchdogs` gives single tests another time limit, in seconds.

    Raises:
        PlanError: a level, test or fault that does not exist, or a fault for a test that does not run.
    """
    if level not in LEVELS:
        raise PlanError(f"no such level: {level!r}; there is {_listed(LEVELS)}")
    for test in (*only, *(watchdogs or {})):
        if test not in LEVELS[level]:
            raise PlanError(f"no such test in level {level}: {test!r}; there is {_listed(LEVELS[level])}")
    specs = tuple(
        msgspec.structs.replace(SPECS[test], watchdog_s=(watchdogs or {}).get(test, SPECS[test].watchdog_s))
        for test in LEVELS[level]
        if not only or test in only
    )
    return Plan(level, specs, _faults(inject, specs))


def _faults(inject: Sequence[str], specs: Sequence[Spec]) -> dict[str, str]:
    running = {spec.test: spec for spec in specs}
    faults: dict[str, str] = {}
    for word in inject:
        test, _, fault = word.partition(":")
        if test not in running:
            raise PlanError(f"cannot inject {word!r}: {test!r} does not run; {_listed(running)} would")
        if fault not in running[test].faults:
            raise PlanError(f"cannot inject {word!r}: {test} knows {_listed(running[test].faults)}")
        if test in faults:
            raise PlanError(f"cannot inject {word!r}: one fault for each test, and {faults[test]} is asked for already")
        faults[test] = fault
    return faults


def _listed(words: Sequence[str] | Mapping[str, object]) -> str:
    return ", ".join(words)
