"""Collectors, one file per source. Reading and parsing are two functions.

Loaded by `source_child`; the daemon calls `beacons` itself. May import `samples` and `machine_access`; nothing of
checks, nor of each other.
"""
