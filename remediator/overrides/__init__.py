"""What operators say, and how it limits or replaces automation.

Lives here: operator holds, manual cordons, commands on incidents, mode and silences, reconciliation with the scheduler's holds.
Called by `pipeline`; read by `execution`, `api` and `web`.
Pure: each function takes one operator input (or scheduler answer) and changes the state.
May import `incidents`, `decisions`, `state` and `model`.
"""
