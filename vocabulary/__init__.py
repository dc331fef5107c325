"""What two programs exchange or must agree on, and nothing else.

Holds identities, findings, health, orders, wire messages, the Xid grammar, the fault catalogue and the clock. All
programs import it; it imports none of them. Nothing here opens a socket, starts a process, or decides a policy.
"""

VERSION = "0.1.0"
