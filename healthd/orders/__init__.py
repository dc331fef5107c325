"""Orders on the node: fetched, made durable, then performed; one file per kind.

Holds the inbox, the order store, the executor and its tasks. An order is never completed twice. Called by
`service_threads` and the daemon. May import `controller`, `storage`, `findings`, `telemetry`, `trainer.beacons` and
`samples`.
"""
