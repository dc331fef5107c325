"""`healthctl node check`: the local verdict in the format of the monitoring system that runs it.

`healthctl.commands.node_command` and `nvhcd` call it.
It imports as little as possible, since a prolog waits for it before every job.
"""
