"""Recent samples kept in memory, and the evidence bundle made of them.

Holds the history of an hour, its last quarter second by second, and step summaries of ranks.
Called by `node_monitor` (writes) and by `http_server`, `orders` and `reporting` (reads).
May import `daemon_status`, `findings`, `samples` and `healthd.trainer`'s page reader.
"""
