"""The remediator's commands other than `serve`, one file per group: store, tokens, webhooks, reservations.

Called by `main`. May import `api`, `config`, `store`, `notifications` and `schedulers`.
"""
