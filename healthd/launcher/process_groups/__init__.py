"""Which process holds which rank, generation after generation.

Holds the group membership, the rendezvous server, and the run whose lost ranks are replaced by spares.
Called by the backends.
May import `scheduler_backend`, `decisions`, `trainer.rendezvous_client` and `trainer.exit_codes`.
"""
