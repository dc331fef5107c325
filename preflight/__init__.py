"""Proves a node fit. Plan and judge are pure; torch is imported only in `preflight.checks` and `preflight.kernels`."""
