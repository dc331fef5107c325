"""Collectors, one file per source: sample (one raw reading), exported metrics, and how to read and parse it.

Reading and parsing are two functions; an unavailable value is None (unknown), never zero. Loaded by `source_child`,
and for the sample types and metrics by the daemon, which calls `beacons` itself. May import `samples` and
`machine_access`; nothing of checks, nor of each other.
"""
