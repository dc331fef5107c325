"""NVIDIA hardware and the kernel: GPU architectures, recovery requests, throttle reasons, kernel parameters, small files.

healthd, preflight and remediator call it.
It imports nothing.
"""
