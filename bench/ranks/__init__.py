"""Ranks of a training job without torch: their all-reduce over TCP, the store that their guards share, the generations of their process group, a model.

May live here: what the jobs of `bench.day`, `bench.swap_ranks` and `tests.chaos` have in common.
"""
