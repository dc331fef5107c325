"""Credentials, wherever they are looked after: over the API as an admin, or in the database where it is at hand.

May live here: the two places. May not: what a token may do; that is the remediator's own.
"""
