"""Determines rank and address of this process: one module per launcher, each reads its own environment variables.

`preflight.group.group_session` calls `launcher_detection`. Pure, except for the given environment.
"""
