"""Recent samples kept in memory, and the evidence bundle made of them.

Holds the second-by-second ring, the one-hour ring, and step summaries of ranks.
Called by `node_monitor` (writes) and by `http_server`, `orders` and `reporting` (reads).
May import `daemon_status`, `findings`, `samples` and `healthd.trainer`'s page reader.
"""
