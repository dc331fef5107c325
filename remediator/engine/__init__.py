"""The decision thread: it takes inputs from a fair queue, decides, commits and publishes.

Lives here: the engine, the batch writer, the fair queue, counters of the term, policy reload, the duty cycle of helper threads.
Called by `serving`, `api`, `monitoring` and `execution`, which submit inputs and read snapshots.
Nothing outside is touched before its batch is durable.
May import `config`, `playbook`, `pipeline`, `decisions`, `store`, `state` and `model`.
"""
