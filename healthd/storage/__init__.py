"""Everything durable on the node, in one SQLite file and one marker file.

Holds the node's database, the writer thread that owns it, the changes not yet delivered, and the history marker.
Called by `finding_recorder`, `orders`, `reporting` and the daemon.
May import `samples` and `vocabulary`.
"""
