"""The remediator's commands other than `serve`, one file per group: store, tokens, webhooks, reservations.

Called by `main`. May import `config`, `store`, `notifications`, `schedulers` and `model`.
"""
