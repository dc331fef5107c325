"""What the guard asks of the training framework and of the GPU. The guard itself knows neither."""

from __future__ import annotations

import sys
from typing import Any, Protocol

from healthd.trainer.beacons.rank_placement import RankGpu


class Framework(Protocol):
    """Three deeds that need the framework. Any may hang or raise; the guard puts a deadline on the last two."""

    def synchronize(self) -> None:
        """Return when all collectives of finished steps are complete on this rank's device.

        No deadline: training itself waits for them a step later, and an abort takes a rank out that is stuck in here.
        """
        ...

    def abort(self) -> None:
        """Tear the communicators down while collectives may be stuck in them."""
        ...

    def teardown(self) -> None:
        """Tear the process groups down in good order; every rank does so at the same step."""
        ...


class NoFramework:
    """For loops whose collectives are complete when they return, and leave nothing to tear down."""

    def synchronize(self) -> None:
        """The host is never ahead."""

    def abort(self) -> None:
        """No communicator is known."""

    def teardown(self) -> None:
        """No process group is known."""


def framework_in_use() -> Framework:
    """The adapter for what this process has already imported; nothing is imported that is not there."""
    if "torch" in sys.modules:
        from healthd.trainer.adapters.pytorch import PyTorch  # noqa: PLC0415 - only where torch already is

        return PyTorch()
    return NoFramework()


class LateNumber(Protocol):
    """A number on its way from a GPU. Reading it is allowed once a mark made after it was handed over has passed."""

    def read(self) -> float:
        """The number, and the place it lay in is free again."""
        ...


class Device(Protocol):
    """A GPU that times sections and hands over numbers while the host runs ahead. No method waits for it."""

    def gpu(self) -> RankGpu:
        """Which one it is."""
        ...

    def mark(self) -> Any:
        """A mark in the stream of work, behind all that was given to the device so far."""
        ...

    def passed(self, mark: Any) -> bool:
        """Whether the device has come past it."""
        ...

    def between(self, earlier: Any, later: Any) -> float:
        """Seconds from one mark to the other; both have passed."""
        ...

    def free(self, marks: list[Any]) -> None:
        """These marks are needed no more."""
        ...

    def hand_over(self, value: object) -> LateNumber | None:
        """Begin to copy a number that lies on the device; None for one that does not."""
        ...


def device_in_use() -> Device | None:
    """The GPU this process computes on; None where it uses none yet. Nothing is imported or started that is not there."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    from healthd.trainer.adapters.cuda import Cuda  # noqa: PLC0415 - only where torch already is

    return Cuda()
