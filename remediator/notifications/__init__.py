"""Telling people: one file for each kind of receiver, one table of them, and the outbox that carries messages there.

A receiver turns an envelope into requests and sends them within its time; it knows neither the store nor the others.
"""
