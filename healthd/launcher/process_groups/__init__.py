"""Which process holds which rank, generation after generation.

Holds the group membership, the rendezvous server, the run whose lost ranks are replaced by spares, and what the node's
healthd is told of it.
Called by the backends and the loop.
May import `scheduler_backend`, `launch_journal`, `stderr_writer`, `decisions`, `trainer.rendezvous_client`,
`trainer.exit_codes` and `vocabulary`.
"""
