"""Pure: what to do about an incident, and why. Records and a time in, records and reasons out.

No clock, no store, no network, no logging may live here. Every answer carries its reason, also when it is "nothing".
"""
