"""Parsers for lines of the GPU driver and the fabric manager: Xid, SXid, their details, the mark of injected lines.

healthd's kernel-log collector, preflight and healthctl call it.
Pure; may import `vocabulary.identity` and `vocabulary.hardware`. `fabric_manager_line` uses the standard library only.
"""
