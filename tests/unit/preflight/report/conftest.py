"""Documents to show: one that passed, one of each way not to, and one of eight GPUs after a burn-in."""

from __future__ import annotations

import random

import msgspec
import pytest

from preflight.check_context import Device
from preflight.results import (
    DOCUMENT_VERSION,
    Document,
    Expectation,
    Figure,
    Location,
    Outcome,
    Result,
    Source,
    Verdict,
)

AT = 1_700_000_000.0
HOSTILE = "</script><b>&\x1b[2J\u202e\x00]]>"


def figure(name: str, value: float, unit: str, setting: str = "", **bounds: tuple[float, str]) -> Figure:
    """A figure with lower bounds by source, each a number and its words."""
    expected = tuple(
        Expectation(source=Source[source], words=words, at_least=at) for source, (at, words) in bounds.items()
    )
    margin = min(((value - each.at_least) / each.at_least for each in expected if each.at_least), default=None)
    return Figure(name=name, value=value, unit=unit, setting=setting, expected=expected, margin=margin)


def devices(results: tuple[Result, ...]) -> tuple[Device, ...]:
    """All that the results speak of."""
    names = sorted({result.device for result in results if result.device})
    return tuple(
        Device(name=name, torch_name=name.partition(":")[0], index=number, label="host memory and processor", memory_bytes=1 << 30)
        if name.startswith("cpu")
        else Device(name=name, torch_name=name, index=number, label=name, product="NVIDIA H200", uuid=f"GPU-{number}", memory_bytes=150_754_820_096)
        for number, name in enumerate(names)
    )  # fmt: skip


def document(*results: Result, level: str = "gate", **said: object) -> Document:
    """What a run of these results answers."""
    wrong = [r for r in results if r.outcome in {Outcome.FAIL, Outcome.HANG}]
    unsure = [r for r in results if r.outcome in {Outcome.ERROR, Outcome.NOT_RUN}]
    verdict = Verdict.FAIL if wrong else Verdict.INCONCLUSIVE if unsure else Verdict.PASS
    reasons = tuple(f"{r.test}{f' on {r.device}' if r.device else ''}: {r.reason}" for r in wrong or unsure)
    made = Document(
        version=DOCUMENT_VERSION,
        level=level,
        node="gpu-node-17",
        complete=True,
        rounds=1,
        verdict=verdict,
        reason="; ".join(reasons),
        reasons=reasons,
        injected=(),
        started_at=AT,
        seconds=9.25,
        devices=devices(results),
        software={"driver": "580.95.05", "torch": "2.11.0"},
        results=results,
    )
    return msgspec.structs.replace(made, **said)


def node_of_eight(noise: random.Random) -> list[Result]:
    """A healthy burn-in of eight H200."""
    results = [
        Result(
            test="software",
            outcome=Outcome.PASS,
            seconds=0.2,
            evidence={"driver": "580.95.05", "torch": "2.11.0", "nccl": "2.29.3"},
        )
    ]
    names = [f"cuda:{number}" for number in range(8)]
    results += [Result(test="gpu_state", outcome=Outcome.PASS, device=name, seconds=0.1) for name in names]
    for test, unit, rates, seconds in (
        ("memory_pattern", "GB/s", {"write_rate": 4500, "verify_rate": 4490}, 240),
        ("memory_bandwidth", "GB/s", {"copy_rate": 4280}, 10),
        ("matmul_repeat", "TFLOP/s", {"product_rate": 789}, 300),
        ("host_link", "GB/s", {"h2d_rate": 55.3, "d2h_rate": 54.8}, 20),
    ):
        for name in names:
            found = tuple(
                figure(rate, usual * noise.gauss(1, 0.008), unit, "bf16 8192" if test == "matmul_repeat" else "",
                       SKU=(usual * 0.93, "93 % of what an H200 SXM reaches"), SIBLINGS=(usual * 0.92, "92 % of the node's median"))
                for rate, usual in rates.items()
            )  # fmt: skip
            results.append(
                Result(
                    test=test, outcome=Outcome.PASS, device=name, seconds=seconds * noise.gauss(1, 0.01), figures=found
                )
            )
    for name in names:
        hot = Figure(name="temperature_max", value=61 + noise.random() * 9, unit="°C", setting="under load",
                     expected=(Expectation(source=Source.PHYSICAL, words="87 °C is where the GPU slows down", at_most=87.0),), margin=0.2)  # fmt: skip
        results.append(
            Result(
                test="sustained_load",
                outcome=Outcome.PASS,
                device=name,
                seconds=900.0,
                figures=(hot, Figure(name="power_mean", value=690 + noise.random() * 9, unit="W")),
            )
        )
    return results


def links(to: int, noise: random.Random) -> tuple[Figure, ...]:
    """What comes in at one device from all others; between 2 and 6 at half the rate."""
    rates = [(n, 392 * noise.gauss(1, 0.008) * (0.5 if {n, to} == {2, 6} else 1)) for n in range(8) if n != to]
    floor = (335.0, "floor of an H200")
    median = figure("pair_rate", sorted(rate for _, rate in rates)[3], "GB/s", "nvlink", SKU=floor)
    return median, *(
        figure("pair_rate", rate, "GB/s", f"nvlink, cuda:{n} to cuda:{to}", SKU=floor) for n, rate in rates
    )


@pytest.fixture
def passing() -> Document:
    return document(
        Result(test="gpu_state", outcome=Outcome.NOT_APPLICABLE, reason="no GPU on the PCI bus and no NVML library"),
        *(
            Result(test="memory_pattern", outcome=Outcome.PASS, device=f"cpu:{number}", seconds=1.5,
                   figures=(figure("write_rate", 8.0 + number, "GB/s", PHYSICAL=(2.0, "a tenth of two channels")),),
                   evidence={"label": "host memory and processor", "bytes": 100663296},
                   remarks=("no Triton here: torch writes and verifies",))
            for number in range(2)
        ),
    )  # fmt: skip


@pytest.fixture
def failing() -> Document:
    results = node_of_eight(random.Random(1))  # noqa: S311 - noise
    slow = next(n for n, r in enumerate(results) if (r.test, r.device) == ("host_link", "cuda:3"))
    bound = (51.4, "93 % of what an H200 SXM reaches")
    results[slow] = Result(
        test="host_link", outcome=Outcome.FAIL, device="cuda:3", seconds=20.0,
        reason="d2h_rate 27.1 GB/s is under 51.4 GB/s (product table: 93 % of what an H200 SXM reaches)",
        figures=(figure("h2d_rate", 27.4, "GB/s", SKU=bound), figure("d2h_rate", 27.1, "GB/s", SKU=bound)),
        locations=(Location(gpu="GPU-5d2b", path="0000:4e:00.0"),), evidence={"width": 8, "generation": 5},
        remarks=("the link is x8 where its siblings are x16",),
    )  # fmt: skip
    bits = next(n for n, r in enumerate(results) if (r.test, r.device) == ("memory_pattern", "cuda:5"))
    results[bits] = msgspec.structs.replace(
        results[bits], outcome=Outcome.FAIL,
        reason="2 wrong words in pattern walking ones, first 0x3000268: 0x0000000000200000 expected, 0 read",
        locations=(Location(gpu="GPU-77aa", address="0x3000268", page="0x18"), Location(gpu="GPU-77aa", address="0x3000a68", page="0x18")),
        evidence={"pattern": "walking ones", "wrong_words": 2, "wrong_bits": "0x0000000000200000"},
    )  # fmt: skip
    noise = random.Random(3)  # noqa: S311 - noise
    results += [
        Result(test="peer_links", outcome=Outcome.PASS, device=f"cuda:{n}", seconds=8.0, figures=links(n, noise))
        for n in range(8)
    ]
    return document(*results, level="burn-in", seconds=2292.0, rounds=3)


@pytest.fixture
def hanging() -> Document:
    """One GPU lost in a collective, what follows not run; a planned test has no result."""
    return document(
        Result(test="gpu_state", outcome=Outcome.PASS, device="cuda:0", seconds=0.1),
        Result(test="gpu_state", outcome=Outcome.PASS, device="cuda:1", seconds=0.1),
        Result(test="collectives", outcome=Outcome.HANG, device="cuda:1", seconds=60.0, reason="no end within 60 s; last seen at: all_reduce 64 MiB"),
        Result(test="peer_links", outcome=Outcome.NOT_RUN, reason="collectives took cuda:1 down; run it again with --only peer_links"),
        Result(test="host_memory", outcome=Outcome.ERROR, reason="MemoryError: 8 GiB asked for"),
        injected=("collectives:hang@cuda:1",),
        seconds=75.0,
    )  # fmt: skip


@pytest.fixture
def huge() -> Document:
    """Eight GPUs, burn-in, all well."""
    results = node_of_eight(random.Random(2))  # noqa: S311 - noise
    return document(*results, level="burn-in", seconds=2292.0, rounds=3)


@pytest.fixture
def hostile() -> Document:
    """Every string of it is an attempt."""
    bound = Expectation(source=Source.SKU, words=HOSTILE, at_least=2.0)
    wrong = Result(
        test=HOSTILE, outcome=Outcome.FAIL, device=HOSTILE, reason=HOSTILE, remarks=(HOSTILE,), evidence={HOSTILE: HOSTILE},
        locations=(Location(gpu=HOSTILE, address=HOSTILE, page=HOSTILE, peer=HOSTILE, nic=HOSTILE, path=HOSTILE),),
        figures=(Figure(name=HOSTILE, value=1.0, unit=HOSTILE, setting=HOSTILE, expected=(bound,), margin=-0.5),
                 Figure(name="pair_rate", value=1.0, unit=HOSTILE, setting=HOSTILE, expected=(bound,), margin=-0.5)),
    )  # fmt: skip
    return document(wrong, level=HOSTILE, node=HOSTILE, injected=(HOSTILE,))
