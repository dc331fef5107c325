"""`preflight group`: tests many nodes together, one process per node, in rounds of pairs, and names the culprits.

`preflight.group.group_command` is the entry; `launchers` finds the ranks. All decisions are pure.
Only `rendezvous_store`, `pair_transfer` and their callers may load torch.
"""
