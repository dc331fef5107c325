"""Expected values of figures from several sources, and the judgement of results. Pure: readings, tables and baselines in, results out.

`preflight.execution` and `commands` call it.
It may import root modules of preflight only; no torch, no I/O.
"""
