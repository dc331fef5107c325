"""Finds the rank that a stuck job waits for: the sinks of a wait-for graph over each rank's last call. Pure."""
