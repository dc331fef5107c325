"""A simulated node of four GPUs of an unknown product, whose tests take no time: documents as a run makes them."""

from __future__ import annotations

import random

from preflight.check_context import Device
from preflight.host.nvml_recording import NvmlRecording
from preflight.plan import SPECS, Scope
from preflight.platform_measurement.day_plan import DayStep
from preflight.platform_measurement.day_session import DaySession
from preflight.results import DOCUMENT_VERSION, Document, Figure, Outcome, Result, Verdict
from vocabulary.clock import ManualClock

PRODUCT = "NVIDIA X900"
DEVICES = tuple(
    Device(name=f"cuda:{i}", torch_name="cuda:0", index=i, label=PRODUCT, uuid=f"GPU-{i}", product=PRODUCT)
    for i in range(4)
)
DIGESTS = {
    "platform": f"{PRODUCT}, sm_999",
    "votes": True,
    "digests": "bf16 8192 seed 1: aaaa, fp8 8192 seed 1: bbbb",
    "rounding_used": "bf16 8192 checksums: 0.08, bf16 8192 the Triton matmul: 0.3",
}
LIMITS = {"memory_clock_max_mhz": 2619, "memory_bus_bits": 6144}  # as an H200: 4022 GB/s
BLIND = "matmul_repeat:slow"  # the fault that its test misses here
ASTRAY = "peer_links:corrupt"  # the fault that is found on another device


class SimulatedNode:
    """Runs steps: a gate takes 10 s, and devices are 1 % apart and repeats scatter by 0.3 %."""

    def __init__(self, clock: ManualClock, *, gate_s: float = 10.0, devices: tuple[Device, ...] = DEVICES) -> None:
        self._clock, self._gate_s, self._devices = clock, gate_s, devices
        self._chance = random.Random(7)  # noqa: S311 - no secret
        self._reach = [1 + 0.01 * (index - 1.5) for index, _ in enumerate(devices)]
        self.steps: list[DayStep] = []

    def qualify(self, step: DayStep) -> Document:
        self.steps.append(step)
        started_at = self._clock.wall()
        self._clock.advance(self._gate_s)
        results = [Result(test="software", outcome=Outcome.PASS, evidence={"power_limit_default_w": 900, "os": "X"})]
        for reach, device in zip(self._reach, self._devices, strict=True):
            results += self._measure(reach, device.name)
        for word in step.inject if self._devices else ():
            results.append(self._fail(word))
        verdict = Verdict.FAIL if step.inject else Verdict.PASS if self._devices else Verdict.MISCONFIGURED
        return Document(
            version=DOCUMENT_VERSION,
            level=step.level,
            node="first",
            complete=True,
            rounds=1,
            verdict=verdict,
            reason="",
            reasons=(),
            injected=step.inject,
            started_at=started_at,
            seconds=self._gate_s,
            devices=self._devices,
            software={"driver": "999.1", "torch": "2.99"},
            results=tuple(results),
        )

    def _measure(self, reach: float, name: str) -> list[Result]:
        def take(usual: float) -> float:
            return usual * reach * (1 + self._chance.gauss(0, 0.003))

        rate = Figure(name="product_rate", value=take(1000), unit="TFLOP/s", setting="bf16 8192")
        copies = Figure(name="copy_rate", value=take(3600), unit="GB/s")
        latency = Figure(name="collective_latency", value=20.0, unit="us", setting="4 ranks, 8 B")
        return [
            Result(test="matmul_repeat", outcome=Outcome.PASS, device=name, figures=(rate,), evidence=dict(DIGESTS)),
            Result(
                test="memory_bandwidth",
                outcome=Outcome.PASS,
                device=name,
                figures=(copies,),
                seconds=2.0,
                evidence=dict(LIMITS),
            ),
            Result(test="collectives", outcome=Outcome.PASS, device=name, figures=(latency,), seconds=1.0),
        ]

    def _fail(self, word: str) -> Result:
        test = word.partition(":")[0]
        if word == BLIND:
            return Result(test=test, outcome=Outcome.PASS, device=self._devices[-1].name)
        if word == ASTRAY:
            return Result(test=test, outcome=Outcome.FAIL, device=self._devices[0].name, reason="the injected fault")
        device = "" if SPECS[test].scope is Scope.NODE else self._devices[-1].name
        return Result(test=test, outcome=Outcome.FAIL, device=device, reason="the injected fault")


def start_session(
    minutes: float, *, gate_s: float = 10.0, devices: tuple[Device, ...] = DEVICES
) -> tuple[DaySession, SimulatedNode, ManualClock]:
    """A session on such a node. It has not run yet."""
    clock = ManualClock()
    node = SimulatedNode(clock, gate_s=gate_s, devices=devices)
    recording = NvmlRecording(failures=("no driver here",))
    return DaySession(node.qualify, lambda: recording, clock, minutes, lambda _: None), node, clock
