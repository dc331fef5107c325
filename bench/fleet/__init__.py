"""A whole fleet's load on one remediator: pretended nodes over real HTTP, one file a behaviour.

Usage: python -m bench.fleet [--nodes N] [--minutes M] [--store sqlite|postgresql] ...

`crowd` is the process of the pretended nodes: `reporting`, `polling`, `dripping` and `malformed` are what they do, `link` is one
connection, `balancer` knows the replica that leads. `centre`, `store` and `samples` are the real remediator, its database, and what it
uses over time. `accounts` compares what was sent with what is stored (pure), `table` prints. In the way of the figures stand only the
crowd's own delays: it measures them and they are told.
"""
