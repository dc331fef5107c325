"""Parses kernel logs of any format, line by line. Pure: lines in, records out; the command opens the files.

`healthctl.commands.xid_command` and `xid_explanation` call it.
It may import `vocabulary`.
"""
