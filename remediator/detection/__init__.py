"""Pure detectors over many nodes: records in, a number or a verdict out.

Lives here: `hangs`, `stragglers` and `lemons`, and the failure hazard. They do not import each other. Called by
`monitoring`, `simulation` and `healthctl`. May import `model` only.
"""
