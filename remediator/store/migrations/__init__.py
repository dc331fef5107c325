"""Alembic's environment, shipped with the program; one file a revision in `versions`. Revisions stand alone: no record class, no table of today."""
