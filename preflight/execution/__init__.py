"""Runs a plan: worker processes, one for the node and one for each device, a watchdog over each test.

`qualification` is the entry: plan in, judged document out; `worker` is the program of the child process.
Called by `preflight.main` only.
May import root modules, `host`, `expectations`, `device_comparison`; only `worker` imports `checks` (torch), and only inside functions.
"""
