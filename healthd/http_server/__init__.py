"""The local HTTP server on TCP and the UNIX socket.

Holds request parsing, connection limits, and the status, metrics and evidence endpoints.
Called by the daemon; `healthctl` reads the check names.
May import everything but `daemon`, `node_monitor` and `main`; it reads the frozen status and never the samples.
"""
