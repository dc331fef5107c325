"""Stacks of trainer ranks: where a rank is, and one tree over all ranks.

Called by healthd, by the controller and by `healthctl`. Pure, and imports nothing else of the package.
"""
