"""The Prometheus page, made from the daemon's last status.

Called by `http_server`. May import `daemon_status`, `findings`, `samples` and `source_monitoring`. A scrape reads
memory only; it never touches a driver or a disk.
"""
