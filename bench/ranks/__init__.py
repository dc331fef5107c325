"""Ranks without torch, small enough for dozens on one machine: their all-reduce, their generations, a model. Shared by `bench.day` and `bench.swap_ranks`."""
