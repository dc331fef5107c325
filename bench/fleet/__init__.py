"""A whole fleet's load on one remediator: simulated nodes over real HTTP, one file a behaviour.

Usage: python -m bench.fleet [--nodes N] [--minutes M] [--store sqlite|postgresql] ...
       python -m bench.fleet.steady_load ...   reports without news only, by the generator in C of `load_generator`

`simulated_nodes` is the process of the nodes: `node_reports`, `order_polls`, `slow_clients` and `malformed_clients` are what they
do, `link` is one connection, `balancer` finds the replica that leads. `controller_replicas`, `store` and `samples` are the real
remediator, its database, and what it uses over time. `accounts` compares what was sent with what is stored (pure), `table` prints.
`simulated_nodes` measures its own delays, which make the controller's answers look late, and prints them beside the figures.
"""
