"""Determines rank and address of this process: `launcher_detection` reads each launcher's environment variables.

`preflight.group.group_session` calls `launcher_detection`. Pure, except for the given environment.
"""
