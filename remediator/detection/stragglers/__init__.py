"""Finds the rank that slows a job down from the timings of all ranks: numpy arrays in, a verdict out. Pure."""
