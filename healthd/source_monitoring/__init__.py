"""The sources that the source child reads.

Holds their registry, schedules and checks, the child's parent, and the sources that the daemon reads itself.
Called by `node_monitor`, the daemon, the exporter and `healthctl doctor`.
May import `checks`, `findings`, `gpu_monitoring`, `samples`, `supervision`, `config` and `thresholds`.
"""
