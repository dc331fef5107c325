"""Revisions in order. A released revision is never changed."""
