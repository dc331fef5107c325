"""Marked test faults: lines in the kernel log, or readings and hangs that healthd simulates.

`healthctl.commands.inject_command` and `demo` call it.
It may import `healthd.config`, `durations` and `vocabulary`.
"""
