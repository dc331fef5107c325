"""Analyses of recorded files, one module a command: read, ask a pure detector, print what it found."""
