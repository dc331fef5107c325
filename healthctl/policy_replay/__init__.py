"""Reads recorded input and decisions of the controller from its database or an export, and compares two replays.

`healthctl.commands.replay_command` and `playbook_command` call it.
It may import the remediator; `remediator.replay.journal_replay` makes the decisions.
"""
