"""How often to save: from what a save really costs and how likely this job's nodes are to fail now. Standard library only."""

from __future__ import annotations

from healthd.trainer.interval.schedule import Bounds, CheckpointInterval

__all__ = ["Bounds", "CheckpointInterval"]
