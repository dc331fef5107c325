"""What launchers on this node say of their jobs' replaced ranks.

Holds the endpoint's rules and the bounded memory that reports are made from.
Called by `http_server`, `reporting` and the daemon.
May import `trainer.beacons.job_owners` and `vocabulary`.
"""
