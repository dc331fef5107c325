"""The `healthctl` command line.

Entry point: `healthctl.main`. Each command lives in a module of `healthctl.commands`, imported when the command runs.
It may import every other package; no other package imports it.
"""
