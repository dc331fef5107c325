"""The tests of a level: order, time limits, injected faults. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence

import msgspec


class PlanError(ValueError):
    """An invalid request. The message names the invalid word and lists the valid ones."""


class Scope(str, enum.Enum):
    """The scope of a test, which determines where it runs."""

    NODE = "node"  # the machine: in one process without torch
    DEVICE = "device"  # one device: in all devices' processes at once
    PEERS = "peers"  # the devices together: in all their processes, with torch's default process group


class Spec(msgspec.Struct, frozen=True):
    """One test.

    `compute_watchdog_s` is the longest a healthy machine may take for it at any level; `faults` are its own values for
    `--inject`, besides `ANY_FAULT`; `seconds` is its intended duration at each level that runs it.
    """

    test: str
    scope: Scope
    watchdog_s: float
    faults: tuple[str, ...]
    seconds: Mapping[str, float]


class Injection(msgspec.Struct, frozen=True):
    """A fault to inject, on one device; the last one if `device` is empty."""

    fault: str
    device: str = ""


class Plan(msgspec.Struct, frozen=True):
    """The tests to run, in order; `faults` maps a test to its injected faults."""

    level: str
    specs: tuple[Spec, ...]
    faults: Mapping[str, Injection]

    def needs(self, *scopes: Scope) -> bool:
        """Whether any test has one of these scopes."""
        return any(spec.scope in scopes for spec in self.specs)


START_WATCHDOG_S = 120.0  # of a process, imports included: torch on a cold disk takes a minute
JOIN_WATCHDOG_S = 60.0  # of NCCL's start over all devices: seconds on eight GPUs, more on a machine just booted
# The duration of a level: its tests run in rounds as long as another round fits, so that heat and random faults can
# show. The first round that is not a pass ends the run; a plan without device tests has one round.
LASTS_S = {"gate": 0.0, "standard": 120.0, "burn-in": 1800.0}
# A gate blocks a job, and a prolog runs it on a node that may hang: a hanging device must be detected in time. A gate's
# tests take a tenth of this on a machine with six times its load capacity; not measured with NCCL on GPUs. Tests of the
# node keep their time: an idle driver takes long to wake, and healthd detects a hanging one.
GATE_WATCHDOG_S, GATE_TIMES = 30.0, 20.0
ANY_FAULT = ("hang", "crash")  # of the test's process; available for every test


def _map_level_seconds(
    gate: float | None = None, standard: float | None = None, burn_in: float | None = None
) -> dict[str, float]:
    asked = {"gate": gate, "standard": standard, "burn-in": burn_in}
    return {level: seconds for level, seconds in asked.items() if seconds is not None}


SPECS = {
    spec.test: spec
    for spec in (
        Spec("gpu_state", Scope.NODE, 60.0, ("remap_pending", "lost"), _map_level_seconds(1, 1, 1)),
        Spec(
            "software",
            Scope.NODE,
            30.0,
            ("ecc_off", "mig_on", "mismatch", "no_fabric_manager"),
            _map_level_seconds(1, 1, 1),
        ),
        Spec("host_memory", Scope.NODE, 300.0, ("bit_flip", "slow"), _map_level_seconds(None, 10, 60)),
        Spec("storage", Scope.NODE, 240.0, ("wrong_bytes", "slow", "full"), _map_level_seconds(None, 8, 30)),
        Spec("nic_rails", Scope.NODE, 360.0, ("down", "slow", "corrupt"), _map_level_seconds(None, 5, 15)),
        Spec("host_link", Scope.DEVICE, 120.0, ("narrow", "slow", "corrupt"), _map_level_seconds(1, 5, 20)),
        Spec(
            "memory_pattern",
            Scope.DEVICE,
            240.0,
            ("bit_flip", "stuck_bit", "stuck_line", "alias"),
            _map_level_seconds(1, 10, 60),
        ),
        Spec("memory_retention", Scope.DEVICE, 480.0, ("decay",), _map_level_seconds(None, None, 120)),
        Spec("row_hammer", Scope.DEVICE, 240.0, ("victim_bit", "one_flip"), _map_level_seconds(None, None, 20)),
        Spec(
            "memory_bandwidth",
            Scope.DEVICE,
            120.0,
            ("slow_copy", "wrong_copy", "skipped_copy", "wrong_read"),
            _map_level_seconds(1, 4, 10),
        ),
        Spec("cache_pattern", Scope.DEVICE, 120.0, ("bit_flip", "stuck_bit"), _map_level_seconds(None, 6, 30)),
        Spec(
            "on_chip_memory",
            Scope.DEVICE,
            120.0,
            ("register_bit", "shared_bit", "l1_bit"),
            _map_level_seconds(None, 1, 10),
        ),
        Spec(
            "matmul_repeat",
            Scope.DEVICE,
            360.0,
            ("one_output", "all_outputs", "operand", "nan", "one_device", "slow"),
            _map_level_seconds(1, 20, 120),
        ),
        Spec(
            "special_functions",
            Scope.DEVICE,
            180.0,
            ("one_output", "all_outputs", "operand", "nan", "one_device"),
            _map_level_seconds(None, 5, 30),
        ),
        Spec(
            "peer_links",
            Scope.PEERS,
            240.0,
            ("corrupt", "slow_link", "slow_device", "silent", "nvlink_down"),
            _map_level_seconds(1, 8, 60),
        ),
        Spec(
            "collectives",
            Scope.PEERS,
            240.0,
            ("wrong_sum", "stuck_bit", "late_rank", "slow"),
            _map_level_seconds(1, 8, 60),
        ),
        Spec(
            "power_steps",
            Scope.PEERS,
            240.0,
            ("wrong", "brake", "lost"),
            _map_level_seconds(None, 5, 60),
        ),
        Spec(
            "sustained_load",
            Scope.DEVICE,
            480.0,
            ("throttle", "hot", "slow_one", "wrong"),
            _map_level_seconds(None, 20, 240),
        ),
    )
}
LEVELS = {level: tuple(test for test, spec in SPECS.items() if level in spec.seconds) for level in LASTS_S}


def compute_watchdog_s(spec: Spec, level: str) -> float:
    """The longest time a healthy machine may take for this test at `level`, in seconds."""
    if level != "gate" or spec.scope is Scope.NODE:
        return spec.watchdog_s
    return min(spec.watchdog_s, max(GATE_WATCHDOG_S, GATE_TIMES * spec.seconds[level]))


def build_plan(
    level: str,
    only: Sequence[str] = (),
    inject: Sequence[str] = (),
    watchdogs: Mapping[str, float] | None = None,
) -> Plan:
    """The plan for `level`; `only` selects tests, `inject` holds ``TEST:FAULT[@DEVICE]`` entries.

    `watchdogs` overrides time limits of single tests, in seconds.

    Raises:
        PlanError: a level, test or fault that does not exist, or a fault for a test that does not run.
    """
    if level not in LEVELS:
        raise PlanError(f"no such level: {level!r}; use one of {_format_names(LEVELS)}")
    for test in (*only, *(watchdogs or {})):
        if test not in LEVELS[level]:
            raise PlanError(f"no such test in level {level}: {test!r}; use one of {_format_names(LEVELS[level])}")
    specs = tuple(
        msgspec.structs.replace(
            SPECS[test], watchdog_s=(watchdogs or {}).get(test, compute_watchdog_s(SPECS[test], level))
        )
        for test in LEVELS[level]
        if not only or test in only
    )
    return Plan(level, specs, _parse_injections(inject, specs))


def _parse_injections(inject: Sequence[str], specs: Sequence[Spec]) -> dict[str, Injection]:
    running = {spec.test: spec for spec in specs}
    faults: dict[str, Injection] = {}
    for word in inject:
        test, _, rest = word.partition(":")
        fault, at, device = rest.partition("@")
        if test not in running:
            raise PlanError(
                f"cannot inject {word!r}: {test!r} is not selected; the selected tests are {_format_names(running)}"
            )
        known = (*running[test].faults, *ANY_FAULT)
        if fault not in known:
            raise PlanError(f"cannot inject {word!r}: the faults of {test} are {_format_names(known)}")
        if at and running[test].scope is Scope.NODE:
            raise PlanError(f"cannot inject {word!r}: {test} tests the node; leave out @{device}")
        if test in faults:
            raise PlanError(
                f"cannot inject {word!r}: only one fault per test, and {faults[test].fault} is already requested"
            )
        faults[test] = Injection(fault, device)
    return faults


def check_devices(chosen: Plan, names: Sequence[str]) -> None:
    """Check that faults are injected on existing devices; without names nothing is known of them.

    Raises:
        PlanError: a device does not exist.
    """
    for test, injection in chosen.faults.items():
        if names and injection.device and injection.device not in names:
            word = f"{test}:{injection.fault}@{injection.device}"
            raise PlanError(f"cannot inject {word!r}: no such device; use one of {_format_names(names)}")


def _format_names(words: Sequence[str] | Mapping[str, object]) -> str:
    return ", ".join(words)
