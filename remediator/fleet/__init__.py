"""What the controller knows of the nodes beside its records.

Lives here: the registry of last reports, the telemetry cache, and the topology file (racks, switches, images, partitions).
Called by `api`, `web`, `monitoring`, `serving` and `config`.
In memory only; lost on restart and rebuilt by the next reports.
May import `model` only.
"""
