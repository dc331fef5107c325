"""How often to save: from what a save really costs and how likely this job's nodes are to fail now. Standard library only.

The node daemon reads one file of this package, and need not load what only a trainer uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from healthd.trainer.interval.checkpoint_schedule import Bounds, CheckpointInterval

__all__ = ["Bounds", "CheckpointInterval"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from healthd.trainer.interval import checkpoint_schedule  # noqa: PLC0415 - see above

    return getattr(checkpoint_schedule, name)
