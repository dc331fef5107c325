"""Locates slow nodes, links, switches and NICs from results of node pairs. Pure, numpy only.

`preflight.group` calls it.
It may import numpy; no torch, no I/O.
"""
