"""A device whose copies take as long as they may."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from healthd.trainer.adapters.pytorch_host_copy import CopyEvent


class LateStream:
    """A GPU that copies as late as it may: what is not ordered before a change is copied after it."""

    def __init__(self) -> None:
        self.left: list[tuple[torch.Tensor, torch.Tensor]] = []

    def takes(self, source: torch.Tensor) -> bool:
        return source.device.type == "cpu"

    def enqueue(self, copies: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> CopyEvent:
        self.left = list(copies)
        return self

    def synchronize(self) -> None:
        while self.left:
            target, source = self.left.pop()
            target.copy_(source)

    order = synchronize
