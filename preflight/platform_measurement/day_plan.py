"""The steps of a day, in order of worth, and how long each takes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from preflight.plan import ANY_FAULT, GATE_WATCHDOG_S, LEVELS, SPECS, Scope, Spec
from preflight.platform_measurement.day_records import Stage

GATES = 20
GATES_FIRST = 3  # enough for medians and goldens; then faults are worth more than further gates
ENDING_FAULTS = {"peer_links": ("silent",)}  # their process hangs: later tests of the run would miss a peer
ENDED_TEST = "matmul_repeat"  # whose process hangs and crashes; the watchdog is the same for all
GATE_S = 30.0  # of the first gate, before one was timed
FAULTS_FACTOR = 1.5  # a run with faults: tests with missed limits run twice, and wrong data is located
STANDARD_FACTOR = 2.0


class DayStep(msgspec.Struct, frozen=True, kw_only=True):
    """One run: all tests of the level, or `only` some; `inject` as for `--inject`."""

    stage: Stage
    level: str = "gate"
    only: tuple[str, ...] = ()
    inject: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.stage.value}: {', '.join(self.inject) or 'no fault'}"


def plan_steps(specs: Mapping[str, Spec] = SPECS) -> tuple[DayStep, ...]:
    """All steps. One run injects at most one fault per test, and faults of several tests."""
    gate = [specs[test] for test in LEVELS["gate"] if test in specs]
    later = [specs[test] for test in LEVELS["standard"] if test in specs and "gate" not in specs[test].seconds]
    endings = [(test, fault) for test, faults in ENDING_FAULTS.items() for fault in faults]
    endings += [(ENDED_TEST, fault) for fault in ANY_FAULT]
    plain = DayStep(stage=Stage.GATES)
    return (
        *[plain] * GATES_FIRST,
        *(DayStep(stage=Stage.FAULTS, inject=inject) for inject in _combine_faults(gate)),
        *[plain] * (GATES - GATES_FIRST),
        *(DayStep(stage=Stage.ENDINGS, only=(test,), inject=(f"{test}:{fault}",)) for test, fault in endings),
        *(
            DayStep(
                stage=Stage.STANDARD,
                level="standard",
                only=tuple(word.partition(":")[0] for word in inject),
                inject=inject,
            )
            for inject in _combine_faults(later)
        ),
    )


def _combine_faults(specs: Sequence[Spec]) -> Iterator[tuple[str, ...]]:
    """Each fault once: the first of every test, then the second of those that have one, and so on."""
    faults = {
        spec.test: [fault for fault in spec.faults if fault not in ENDING_FAULTS.get(spec.test, ())] for spec in specs
    }
    for number in range(max(map(len, faults.values()), default=0)):
        yield tuple(f"{test}:{names[number]}" for test, names in faults.items() if number < len(names))


def estimate_seconds(step: DayStep, gate_s: float, tests_s: float) -> float:
    """How long a step takes, where a gate takes `gate_s`, of which its tests take `tests_s`. 0 before the first gate."""
    gate_s = gate_s or GATE_S
    start_s = gate_s - tests_s
    if step.stage is Stage.GATES:
        return gate_s
    if step.stage is Stage.FAULTS:
        return FAULTS_FACTOR * gate_s
    if step.stage is Stage.ENDINGS:
        return start_s + 2 * GATE_WATCHDOG_S
    return start_s + STANDARD_FACTOR * sum(SPECS[test].seconds[step.level] for test in step.only)


def find_target(test: str, names: Sequence[str]) -> str:
    """The device on which a fault is injected: the last one; "" for a test of the node."""
    return names[-1] if names and SPECS[test].scope is not Scope.NODE else ""
