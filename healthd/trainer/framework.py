"""What the guard needs from the training framework and the GPU, which it does not know itself."""

from __future__ import annotations

import sys
from typing import Any, Protocol

from healthd.trainer.beacons.rank_placement import RankGpu


class Framework(Protocol):
    """Three operations of the framework. Any may hang or raise; the guard sets a deadline on the last two."""

    def synchronize(self) -> None:
        """Return when all collectives of finished steps are complete on this rank's device.

        No deadline: training waits for them a step later anyway, and an abort releases a rank that is stuck here.
        """

    def abort(self) -> None:
        """Tear the communicators down while collectives may be stuck in them."""

    def teardown(self) -> None:
        """Tear the process groups down in order; every rank does so at the same step."""


class NoFramework:
    """For loops whose collectives are complete on return and that have nothing to tear down."""

    def synchronize(self) -> None:
        """Do nothing: the host is never ahead."""

    def abort(self) -> None:
        """Do nothing: there is no communicator."""

    def teardown(self) -> None:
        """Do nothing: there is no process group."""


def framework_in_use() -> Framework:
    """Return the adapter for what this process has already imported; imports nothing new."""
    if "torch" in sys.modules:
        from healthd.trainer.adapters.pytorch import PyTorch  # noqa: PLC0415 - only where torch already is

        return PyTorch()
    return NoFramework()


class LateNumber(Protocol):
    """A number on its way from a GPU. It may be read once a mark set after it has passed."""

    def read(self) -> float:
        """Return the number and free its memory."""


class Device(Protocol):
    """A GPU that times sections and returns numbers while the host runs ahead. No method waits for it."""

    def gpu(self) -> RankGpu:
        """Return which GPU it is."""

    def mark(self) -> Any:
        """Set a mark in the stream, after all work queued so far."""

    def passed(self, mark: Any) -> bool:
        """Return whether the device has passed the mark."""

    def between(self, earlier: Any, later: Any) -> float:
        """Return the seconds from one mark to the other; both have passed."""

    def free(self, marks: list[Any]) -> None:
        """Release marks that are no longer needed."""

    def hand_over(self, value: object) -> LateNumber | None:
        """Start copying a number on the device; None if it is not on the device."""


def device_in_use() -> Device | None:
    """Return the GPU this process computes on; None if it uses none yet. Imports and starts nothing."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    from healthd.trainer.adapters.cuda import Cuda  # noqa: PLC0415 - only where torch already is

    return Cuda()
