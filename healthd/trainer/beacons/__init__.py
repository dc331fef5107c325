"""The shared-memory beacon page of a rank.

Holds its layout, its writer, its readers, the mailbox, and who owns a job.
Called by the guard, the node daemon, the launcher and `healthctl`.
Standard library only; imports nothing of healthd outside `healthd.trainer`.
"""
