"""The matrix product of a load, repeated, with each bit of each result compared with the first on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import torch

from preflight.check_context import Device
from preflight.checks.torch_devices import synchronize_device

_SEED = 20_260_801


class LoadSize(msgspec.Struct, frozen=True):
    """The product: square matrices of `rows`, of torch's type `kind`; `burst` products until the host waits for them."""

    kind: str
    rows: int
    burst: int

    @property
    def teraflop(self) -> float:
        """TFLOP of one product."""
        return 2 * self.rows**3 / 1e12


class LoadProducts:
    """The operands, and the first result: hot chips, and those whose supply steps, err now and then, not in every product."""

    def __init__(self, device: Device, size: LoadSize) -> None:
        source = torch.Generator(device.torch_name).manual_seed(_SEED)
        shape, kind = (size.rows, size.rows), getattr(torch, size.kind)
        self._device = device
        self._left, self._right = (
            torch.randn(shape, generator=source, device=device.torch_name).to(kind) for _ in range(2)
        )
        self._output = torch.empty(shape, dtype=kind, device=device.torch_name)
        self._first = torch.matmul(self._left, self._right, out=self._output).clone()
        self._words, self._first_words = (each.view(torch.int64) for each in (self._output, self._first))

    def repeat(self, times: int, fault: Callable[[int, Any], None] | None = None) -> tuple[int, int]:
        """Compute the product `times` times; waits for the device. The differing products, and their words of 8 bytes.

        `fault(number, output)` injects an error into one result.
        """
        differing = torch.zeros(2, dtype=torch.int64, device=self._device.torch_name)
        for number in range(times):
            torch.matmul(self._left, self._right, out=self._output)
            if fault is not None:
                fault(number, self._output)
            words = torch.ne(self._words, self._first_words).sum()
            differing += torch.stack((words != 0, words))
        synchronize_device(self._device)
        products, words_wrong = differing.tolist()
        return int(products), int(words_wrong)
