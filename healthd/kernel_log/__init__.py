"""Reads the kernel log, and decides how far a line is credible.

Holds the transports (/dev/kmsg, journal, file), line parsers, authenticity of records, Xid bursts and corroboration by
NVML. Called by the daemon, `node_monitor` and the Xid and kernel-message checks. May import `config`, `host`,
`supervision`, `findings.facts` and `samples`; never a check.
"""
