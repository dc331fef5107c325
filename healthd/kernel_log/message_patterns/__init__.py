"""Kernel messages of faults other than Xids: one file per family, each a table of line patterns.

Called by the kernel-message check. May import `vocabulary` and `samples` only.
"""
