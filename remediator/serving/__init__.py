"""One running replica.

Lives here: the listener, connection limits, leader election, and the services that run during one leader term.
Called by `main`.
It wires `api`, `web`, `engine`, `execution` and `monitoring` together.
May import everything but `main` and `commands`.
"""
