"""Text shared by programs: plurals, durations, surrogate escapes, bounded YAML, Slurm's host lists.

All programs call it.
It imports no other vocabulary module.
"""
