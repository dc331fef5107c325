"""Frozen records of the controller.

Lives here: credentials, occurrences, plan steps, rule conditions, pipeline inputs, journal records and API views.
Called by every other package of the remediator, and by `healthctl`.
Pure: a record only answers questions about itself.
May import `vocabulary` only.
"""
