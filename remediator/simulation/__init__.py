"""A simulated fleet, to compare policies.

Lives here: simulated nodes, jobs, faults and operators; the decisions are made by the real pipeline. Called by
`healthctl simulate` and `bench`. Pure: the caller passes the random generator. May import `pipeline`, `decisions`,
`detection`, `state` and `model`.
"""
