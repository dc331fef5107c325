"""Revisions in their order. A revision that was ever released is never changed."""
