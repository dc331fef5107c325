"""Asks NCCL's RAS service about a job, and finds in its counts whom the job waits for. Standard library only."""
