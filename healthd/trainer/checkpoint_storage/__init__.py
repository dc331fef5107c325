"""Files of checkpoints, and copies of states in memory file systems.

Holds the manifest and checksums, abandoned checkpoints, save rounds over the job's store, and the background task.
Called by `trainer.checkpoint` and the adapters.
Standard library only.
"""
