"""A day of a big cluster in ten minutes: real daemons, a real Slurm, real training processes, faults drawn from published rates.

May live here: what plays the day and what judges it. The judge (`judge`, `account`) reads the trainers' logs, the scheduler's and
the plan of faults, and nothing that the product says of itself.
"""
