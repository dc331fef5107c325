"""Pure detectors over many nodes: records in, a number or a verdict out.

Lives here: `hangs`, `stragglers` and `lemons`, and the failure hazard.
Called by `monitoring`, `api`, `simulation` and `healthctl`.
May import `model` only.
"""
