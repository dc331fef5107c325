"""Who slows a job down, judged from what its ranks measured: numpy arrays in, a verdict out. Pure; draws no numbers."""
