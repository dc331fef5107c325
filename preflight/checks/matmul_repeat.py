"""Arithmetic: the same product of random matrices again and again must give the same bits, and the right ones.

Equal digests prove that repeats agree; a comparison with double precision proves that they don't agree on something
wrong; and since the inputs are finite, a NaN or infinity in the output is a fault of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch

from preflight.checks.context import Context, Device, Note
from preflight.checks.devices import as_bits, synchronize
from preflight.results import Evidence, Outcome, Result

TEST = "matmul_repeat"
SEEDS = (20_241, 77_003)
# Width of the type's fraction: the largest relative error of one rounding is 2^-(bits+1).
TYPES = {"bf16": (torch.bfloat16, 7), "fp32": (torch.float32, 23)}
SUM_BITS = 23  # products are summed in single precision by every device we know
ERRORS_LISTED = 8
_ODD = -7046029254386353131


def run(context: Context) -> Iterator[Result]:
    """One result."""
    if context.device is not None:
        yield check(context.device, context.fault, context.note)


def check(device: Device, fault: str, note: Note) -> Result:
    """All types and seeds on one device."""
    began, flops = time.perf_counter(), 0
    for name in TYPES:
        for seed in SEEDS:
            if found := _check_one(device, name, seed, fault, note):
                return Result(
                    test=TEST, outcome=Outcome.FAIL, device=device.name, reason=_sentence(found), evidence=found
                )
            flops += 2 * _size(device) ** 3 * _repeats(device)
    evidence: Evidence = {
        "label": device.label,
        "size": _size(device),
        "repeats": _repeats(device) * len(SEEDS) * len(TYPES),
        "gigaflops": round(flops / (time.perf_counter() - began) / 1e9),
    }
    return Result(test=TEST, outcome=Outcome.PASS, device=device.name, evidence=evidence)


def _size(device: Device) -> int:
    return 384 if device.on_host else 8192


def _repeats(device: Device) -> int:
    return 4 if device.on_host else 10


def _check_one(device: Device, name: str, seed: int, fault: str, note: Note) -> Evidence:
    """One type, one seed: what is wrong, or nothing."""
    kind, _ = TYPES[name]
    note(f"{device.name}: {name} products, seed {seed}")
    left, right = _operands(device, kind, seed)
    first, expected = None, 0
    for repeat in range(_repeats(device)):
        output = left @ right
        _commit(fault, output, repeat)
        found = digest(output)
        if first is None:
            first, expected = output, found
        elif found != expected:
            what: Evidence = {"type": name, "seed": seed, "repeat": repeat, "what": "differs from repeat 0"}
            return what | _differences(output, first, as_bits(output) != as_bits(first))
    synchronize(device)
    note(f"{device.name}: {name} against double precision, seed {seed}")
    wrong = _beyond_rounding(left, right, first, name)
    if not bool(wrong.any()):
        return {}
    same: Evidence = {"type": name, "seed": seed, "what": "wrong in every repeat"}
    return same | _differences(first, left.double() @ right.double(), wrong)


def digest(tensor: Any) -> int:
    """64 bits over all bits of a tensor and their places; computed on the device, the same for NaN and NaN."""
    words = as_bits(tensor).flatten().to(torch.int64)
    places = torch.arange(1, words.numel() + 1, dtype=torch.int64, device=words.device)
    mixed = places.mul_(_ODD).add_(words).mul_(_ODD)  # never in place on `words`: that may be the tensor itself
    mixed.bitwise_xor_(mixed.bitwise_right_shift(32))
    return int(mixed.mul_(_ODD).sum())


def _operands(device: Device, kind: Any, seed: int) -> tuple[Any, Any]:
    """Two square matrices of normal numbers. Zeros or ones would leave most of the circuits idle."""
    source = torch.Generator(device.torch_name).manual_seed(seed)
    shape = (_size(device), _size(device))
    left, right = (torch.randn(shape, generator=source, device=device.torch_name) for _ in range(2))
    return left.to(kind), right.to(kind)


def _beyond_rounding(left: Any, right: Any, output: Any, name: str) -> Any:
    """Where the output is further from the true product than any order of summation explains; NaN is, always."""
    _, fraction_bits = TYPES[name]
    left, right = left.double(), right.double()
    true = left @ right
    scale = left.abs() @ right.abs()
    allowed = true.abs() * 2.0 ** -(fraction_bits + 1) + scale * left.shape[1] * 2.0 ** -(SUM_BITS + 1)
    return ~((output.double() - true).abs() <= 2 * allowed)


def _commit(fault: str, output: Any, repeat: int) -> None:
    """The injected fault: what a broken multiplier would do."""
    middle = output.shape[0] // 2
    if fault == "nan":
        output[middle, middle] = float("nan")
    elif fault == "all_outputs" or (fault == "one_output" and repeat == 1):
        bits = as_bits(output)
        bits[middle, middle] ^= 1 << (8 * output.element_size() - 3)  # a high bit of the exponent


def _differences(output: Any, wanted: Any, wrong: Any) -> Evidence:
    places = wrong.nonzero()
    listed = [
        f"[{row}, {column}]: {float(wanted[row, column]):g} expected, {float(output[row, column]):g} computed"
        for row, column in places[:ERRORS_LISTED].tolist()
    ]
    return {"wrong_elements": int(places.shape[0]), "errors": "; ".join(listed)}


def _sentence(found: Evidence) -> str:
    first = str(found["errors"]).split("; ")[0]
    return f"{found['type']} product {found['what']}: {found['wrong_elements']} wrong elements, first {first}"
