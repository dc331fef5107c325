"""What checks say and what becomes of it: facts, hysteresis, GPU state and the ledger of active findings.

Called by every check, by the monitors and by the daemon.
May import `samples` and `vocabulary` only. Pure: no clock, no file, no log.
"""
