"""The Alembic environment, shipped with the program; `versions` holds one file per revision.

A revision imports no record class and no table of the current schema, so that later changes cannot break it.
"""
