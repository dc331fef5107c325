"""The front door: one file per command group, imported only when called. Nobody imports it."""
