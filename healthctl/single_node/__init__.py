"""A single-node cluster on this machine: its files, its two programs, and its missing requirements.

`healthctl.commands.up_command` calls it.
It may import `process_supervision`, `credentials`, `doctor` and `api_client`; healthd and the remediator run as programs.
"""
