"""Words that two houses exchange or must agree on, and nothing else.

May live here: identities, findings, health, orders, wire messages, the XID grammar, the catalogue reader, the clock.
May not: anything that opens a socket, starts a process, or decides a policy.
"""

VERSION = "0.1.0"
