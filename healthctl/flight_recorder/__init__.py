"""PyTorch's flight recorder dumps, one for each rank: read without running anything, and told in the words of `remediator.detection.hangs`."""
