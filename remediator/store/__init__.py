"""The store: SQLAlchemy tables, and the mapping between rows and records.

Lives here: the journal, leader lease, tokens, sessions, audit log, deliveries, retention, schema migrations and
queries.
Called by `engine`, `execution`, `monitoring`, `api`, `web`, `serving` and `commands`.
Nothing is decided here.
May import `incidents`, `state` and `model`.
"""
