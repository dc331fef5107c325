"""A simulated fleet, to compare policies.

Lives here: simulated nodes, jobs, faults and operators. The real pipeline makes the decisions.
Called by `healthctl` and `bench`.
Pure: the caller passes the random generator.
May import `pipeline`, `decisions`, `detection`, `state` and `model`.
"""
