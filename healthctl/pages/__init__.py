"""Formats one object for an operator: node, incident, event, status, beacon, blast radius, next step.

The command modules and `healthctl.cli.approval` call it. Pure: views in, blocks or lines out.
It may import `rendering`, `durations`, `vocabulary`, `remediator.model` and `healthd.trainer`; no server.
"""
