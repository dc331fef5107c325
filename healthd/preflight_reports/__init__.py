"""Preflights that others ran on this node.

Holds the endpoint's rules, the queue to the main loop, and the history for the exporter.
Called by `http_server`, `service_threads`, `daemon_status` and the daemon.
May import `samples` and `vocabulary`.
"""
