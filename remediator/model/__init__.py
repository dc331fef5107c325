"""Frozen records of the controller.

Lives here: findings' settlements, occurrences, plan steps, rule conditions, pipeline inputs, journal records and API
views. Called by every other package of the remediator. Pure: a record only answers questions about itself. May import
`vocabulary` only.
"""
