"""The state that every decision depends on, and the indexes over it.

Lives here: the cluster state with its recorded changes, the occurrence history, node and job indexes, recent failures.
Called by `decisions`, `incidents`, `overrides` and `pipeline`; loaded and saved by `store`.
Pure: no clock, no I/O, no log.
May import `model` only.
"""
