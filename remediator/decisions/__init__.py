"""Decides what to do about an incident, and why.

Lives here: rule selection and guards, step verbs, the isolation budget, the circuit breaker, group incidents, spares.
Called by `incidents`, `overrides` and `pipeline`.
Pure: records and a time in, records and reasons out. No clock, store, network or log. Every answer carries its
  reason.
May import `state` and `model`.
"""
