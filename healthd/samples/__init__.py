"""Samples, one file per source: one raw reading at one instant, made by its collector and judged by its check.

Called by collectors, children, checks, exporter and storage. May import `vocabulary` only, and nothing heavy, because
the children load it. An unavailable value is None (unknown), never zero.
"""
