"""Notifications: one file per kind of receiver, their registry, and the outbox that delivers messages.

A receiver turns an envelope into requests and sends them within its deadline. It knows neither the store nor other
receivers.
"""
