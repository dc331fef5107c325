"""Many nodes at once: one process on each, pairs of them tested in rounds, one verdict that names who is at fault.

Torch may be loaded by `store`, `transfer` and what uses them; everything that decides is pure.
"""
