"""The Slurm backend: commands to slurmctld, parsers for the answers of each Slurm version, and ownership of drains.

`slurm_scheduler` is the entry point. `hostlist`, `slurm_records`, `scontrol_text`, `json_documents` and
`drain_ownership` are pure. `slurm_commands` runs Slurm's own programs, `slurmrestd` uses the REST API; both implement
`controller_protocol`, and no other module knows which of the two is in use.
"""
