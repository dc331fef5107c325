"""From NVML samples to findings.

Holds the parent of the NVML child, unresponsive GPUs, the list of GPU checks, and simulated faults.
Called by `node_monitor`, the daemon and `source_monitoring.daemon_sources`.
May import `checks`, `findings`, `samples`, `supervision`, `host` and `thresholds`.
"""
