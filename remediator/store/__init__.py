"""The journal on disk: SQLAlchemy, rows ↔ records. No decision is made here."""
