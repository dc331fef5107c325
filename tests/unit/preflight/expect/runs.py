"""Runs as the tests of expectations need them: devices, one figure each, documents."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.check_context import Device
from preflight.results import Document, Figure, Outcome, Result, Verdict

H200 = "NVIDIA H200"
TEST, NAME, SETTING = "matmul_repeat", "product_rate", "bf16 8192"


def devices(count: int, product: str = H200, node: str = "n1") -> tuple[Device, ...]:
    return tuple(
        Device(
            name=f"cuda:{i}",
            torch_name=f"cuda:{i}",
            index=i,
            label=product,
            uuid=f"GPU-{node}-{i}",
            product=product,
        )
        for i in range(count)
    )


def rate(value: float, setting: str = SETTING, name: str = NAME, unit: str = "TFLOP/s") -> Figure:
    return Figure(name=name, value=value, unit=unit, setting=setting)


def results(values: Sequence[float], figure: Figure | None = None, test: str = TEST) -> tuple[Result, ...]:
    """One result a device, all of one figure."""
    like = figure or rate(1.0)
    return tuple(
        Result(
            test=test,
            outcome=Outcome.PASS,
            device=f"cuda:{i}",
            figures=(Figure(name=like.name, value=value, unit=like.unit, setting=like.setting),),
        )
        for i, value in enumerate(values)
    )


def document(
    node: str,
    values: Sequence[float],
    at: float = 1.0,
    *,
    verdict: Verdict = Verdict.PASS,
    injected: tuple[str, ...] = (),
    complete: bool = True,
    product: str = H200,
    figure: Figure | None = None,
    software: dict[str, str] | None = None,
    machine: str = "",
) -> Document:
    """One run. `machine` is whose devices they are, if `node` is not the only name it has."""
    return Document(
        version=2,
        level="gate",
        node=node,
        complete=complete,
        rounds=1,
        verdict=verdict,
        reason="",
        reasons=(),
        injected=injected,
        started_at=at,
        seconds=1.0,
        devices=devices(len(values), product, machine or node),
        software=software or {},
        results=results(values, figure),
    )
