"""Samples of what has no collector in the source child: NVML, kernel records, rank pages, preflights. One raw reading each.

Also each source's state, and metric declarations. Called by collectors, children, checks, exporter and storage. May
import only `vocabulary`, nothing heavy: the children load it. An unavailable value is None (unknown), never zero.
"""
