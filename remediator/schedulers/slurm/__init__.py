"""The Slurm backend: what we ask slurmctld and tell it, how its answers read in each version, whose drain a drain is.

`scheduler` is the door. `hostlist`, `records`, `text`, `document`, `states` and `pause` are pure; `commands` runs Slurm's own
programs, `restd` speaks to slurmrestd. Both are a `controller`, and nothing else here knows which of the two it is.
"""
