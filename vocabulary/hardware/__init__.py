"""Constants of NVIDIA hardware and of the kernel: GPU architectures, recovery requests, throttle reasons, kernel parameters.

healthd, preflight and remediator call it.
It imports nothing.
"""
