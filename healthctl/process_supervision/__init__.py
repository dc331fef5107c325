"""Runs programs under a supervisor: starts and restarts them, and ends them with all their descendants, even if the parent dies.

`healthctl up` and `healthctl demo` call it. It finds free ports too; which programs run is the caller's part.
It may import nothing of healthctl except `exit_codes`.
"""
