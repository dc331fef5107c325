"""Notifications: receivers, their registry, message texts, and the outbox that delivers them.

A receiver turns an envelope into requests and sends them within its deadline. It knows neither the store nor other
receivers.
Called by `execution`, `api` and `serving`.
May import `model` only.
"""
