"""Checks of what a machine needs for healthd, why it matters, and what to do; one module per part of the machine.

`healthctl.commands.doctor_command` and `single_node` call it.
It may import `healthd` and `vocabulary`; a check changes nothing.
"""
