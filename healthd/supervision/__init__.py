"""Running child processes and telling systemd about this one.

Holds the child supervisor, the shared page that names a child's current call, and sd_notify.
Called by `gpu_monitoring`, `source_monitoring`, `kernel_log`, the daemon and, for the call page, by the children.
May import `host` only; `child_call_page` imports nothing, because the children load it.
"""
