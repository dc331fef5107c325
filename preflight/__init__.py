"""The `preflight` program: tests whether a node is fit for a job.

Entry points: `preflight.main` and `preflight.group`. Planning and judgement are pure; only `checks` and `kernels` import torch.
It may import `vocabulary` and the shared libraries of healthd; healthd and the remediator run it as a program.
"""
