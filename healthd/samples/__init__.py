"""Samples of what has no collector in the source child: NVML, kernel records, rank pages, preflights. One raw reading each.

Called by collectors, children, checks, exporter and storage. May import `vocabulary` only, and nothing heavy, because
the children load it. An unavailable value is None (unknown), never zero.
"""
