"""What the guard asks of the training framework. The guard itself knows none."""

from __future__ import annotations

import sys
from typing import Protocol


class Framework(Protocol):
    """Three deeds that need the framework. Any may hang or raise: the guard puts a deadline on each."""

    def synchronize(self) -> None:
        """Return when all collectives of finished steps are complete on this rank's device."""
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
