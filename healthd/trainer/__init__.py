"""What a training process imports: the guard, checkpoints, beacon pages, and rank replacement.

Called by training programs; the node daemon and the launcher import its beacon pages and exit codes. Standard library
only: torch is imported nowhere but in `adapters`.
"""
