"""Conclusions from the results of several devices or nodes together. Pure: one module per question.

`preflight.execution` and `preflight.group` call it.
It may import root modules and `expectations`; no torch, no I/O.
"""
