"""Offline analyses of recorded files: each command reads files, calls a pure detector and prints the result.

`healthctl.commands.analyze_command` calls it.
It may import `rendering`, `cli`, `flight_recorder` and the detectors in `remediator.detection`; no server.
"""
