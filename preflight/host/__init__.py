"""This machine as tests see it: its files, its driver, how much memory may be taken. No torch.

Whatever reads the machine takes a `Machine`, so that tests give it a folder that stands for /; what is concluded from it is a
pure function beside the reading.
"""
