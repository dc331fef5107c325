"""Scheduler backends, one per scheduler.

Lives here: the scheduler protocol and its implementations (local file, Slurm, Kubernetes).
Called by `execution`, `monitoring`, `serving` and `commands`.
A backend decides nothing. It checks its own precondition right before it acts and may answer "refused".
May import `model` only.
"""
