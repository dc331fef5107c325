"""How often to save, from the measured cost of a save and the current failure rate of the job's nodes.

Holds the optimal interval, the cost estimates, the schedule, and the hazard file. Called by training loops; the node
daemon writes the hazard file and does not load the rest. Standard library only; may import `store_caller` and
`beacons`.
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
