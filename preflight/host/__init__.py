"""Reads this machine: files, driver, memory limits, network rails. No torch.

`preflight.checks`, `execution` and `group` call it.
Readers take a `Machine`, so that tests can use another root folder; pure functions beside them judge the readings.
"""
