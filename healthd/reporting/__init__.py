"""What goes to the controller besides answers to a poll.

Holds the report uplink, the telemetry subscription, the software inventory, and the hazard file for the ranks.
Called by `service_threads` and the daemon.
May import `controller`, `storage`, `orders.order_store`, `daemon_status` and `samples`.
"""
