"""`healthctl demo`: a simulated cluster on one machine, two injected faults, and checks that the training results are unaffected.

`healthctl.main` calls it.
It may import every package of healthctl, `remediator.model` and the test library of simulated GPUs; nothing imports it.
"""
