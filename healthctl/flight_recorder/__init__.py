"""Reads PyTorch flight recorder dumps, one per rank, and converts them to the snapshot that `remediator.detection.hangs` analyzes.

`healthctl.analysis.hang_analysis` calls it.
It may import `remediator.detection` and `vocabulary`. A dump's code is never executed.
"""
