"""How often the limits of rates fail healthy nodes, by the code that judges them. Rates are drawn with a given scatter."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import msgspec

from preflight.check_context import Device
from preflight.expectations.baseline_learning import learn_baseline
from preflight.expectations.measurement_keys import BetterDirection, describe_software_stack, find_better_direction
from preflight.expectations.result_judgement import Knowledge, apply_expectations
from preflight.platform_measurement.day_records import FalseAlarms, FigureNoise
from preflight.results import DOCUMENT_VERSION, Document, Figure, Outcome, Result, Verdict

FLEET = 12  # other nodes that have measured this platform
SHARE_MIN = 0.05  # of the usual value: a rate drawn with a large scatter stays a rate


class NoisyNode:
    """One healthy node: what each device reaches in each figure, and runs of it."""

    def __init__(self, noises: Sequence[FigureNoise], devices: Sequence[Device], chance: random.Random) -> None:
        self._noises, self._devices, self._chance = noises, devices, chance
        self._reach = [
            [_draw_share(noise.between, chance) for _ in range(1 if noise.joint else len(devices))] for noise in noises
        ]

    def run(self) -> tuple[Result, ...]:
        """The results of all devices."""
        figures: dict[tuple[str, str], list[Figure]] = {}
        for noise, reach in zip(self._noises, self._reach, strict=True):
            shares = [each * _draw_share(noise.repeat, self._chance) for each in reach]
            for device, share in zip(self._devices, shares * (len(self._devices) // len(shares)), strict=True):
                less = find_better_direction(noise.unit) is BetterDirection.LESS
                value = noise.usual / share if less else noise.usual * share
                figure = Figure(name=noise.figure, value=value, unit=noise.unit, setting=noise.setting)
                figures.setdefault((noise.test, device.name), []).append(figure)
        return tuple(
            Result(test=test, outcome=Outcome.PASS, device=device, figures=tuple(of_device))
            for (test, device), of_device in figures.items()
        )


def _draw_share(scatter: float, chance: random.Random) -> float:
    return max(SHARE_MIN, 1 + chance.gauss(0, scatter))


class SimulatedFleet:
    """Healthy nodes of one platform, judged with or without a baseline of others."""

    def __init__(
        self, noises: Sequence[FigureNoise], devices: Sequence[Device], seed: str, *, measured: bool, knows: Knowledge
    ) -> None:
        """`knows` is what else is known of the platform: its row in the product table."""
        self._noises, self._devices = noises, devices
        self._chance = random.Random(seed)  # noqa: S311 - no secret
        others = [self._document(f"n{number}") for number in range(FLEET)] if measured else []
        self._knows = msgspec.structs.replace(
            knows, node="judged", software=describe_software_stack({}), baseline=learn_baseline(others)
        )

    def judge_node(self) -> Outcome:
        """The worst outcome of one more node's first measurement."""
        node = NoisyNode(self._noises, self._devices, self._chance)
        outcomes = {result.outcome for result in apply_expectations(node.run(), self._devices, self._knows)}
        return next((each for each in (Outcome.FAIL, Outcome.ERROR) if each in outcomes), Outcome.PASS)

    def _document(self, name: str) -> Document:
        return Document(
            version=DOCUMENT_VERSION,
            level="gate",
            node=name,
            complete=True,
            rounds=1,
            verdict=Verdict.PASS,
            reason="",
            reasons=(),
            injected=(),
            started_at=1.0,
            seconds=1.0,
            devices=tuple(msgspec.structs.replace(device, uuid="") for device in self._devices),
            software={},
            results=NoisyNode(self._noises, self._devices, self._chance).run(),
        )


def count_false_alarms(
    noises: Sequence[FigureNoise],
    devices: Sequence[Device],
    *,
    measured: bool,
    size: tuple[int, int],
    seed: str = "",
    knows: Knowledge | None = None,
    time_left: Callable[[], bool] = lambda: True,
) -> FalseAlarms:
    """Of healthy nodes: any device failed, or else any is inconclusive. Ends when no time is left.

    `size` is the number of fleets, and of judged nodes in each.
    """
    found: list[Outcome] = []
    for number in range(size[0]):
        if found and not time_left():
            break
        fleet = SimulatedFleet(
            noises, devices, f"{seed} {measured} {number}", measured=measured, knows=knows or Knowledge()
        )
        for _ in range(size[1]):
            found.append(fleet.judge_node())
            if not time_left():
                break
    return FalseAlarms(
        measured_platform=measured,
        nodes=len(found),
        failed=found.count(Outcome.FAIL),
        inconclusive=found.count(Outcome.ERROR),
    )
