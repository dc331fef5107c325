"""Marked test faults: as lines in the kernel log, or as readings and hangs that healthd is asked to pretend."""
