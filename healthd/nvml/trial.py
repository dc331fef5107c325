"""Tests one GPU that is left out of the sweeps because the driver hung on it.

    python -m healthd.nvml.trial CALL_PAGE_FD LIBRARY INDEX

Reads everything of this GPU once and writes one line: every call returned, whatever its result. It notes each call on
the call page as the NVML child does; if it hangs, the parent kills it.
"""

from __future__ import annotations

import os
import sys

import pynvml

from healthd.nvml.child import load_driver, set_parent_death_signal
from healthd.nvml.gpu_device import GpuDevice
from healthd.supervision.child_call_page import ChildCallPage


def main(arguments: list[str]) -> int:
    """Read the GPU once. Return 3 if NVML cannot be used, which says nothing about the GPU."""
    call_page, library, index = ChildCallPage(int(arguments[0])), arguments[1], int(arguments[2])
    if not set_parent_death_signal():
        return 0
    try:
        load_driver(library, call_page)
    except (pynvml.NVMLError, OSError):
        return 3
    device = GpuDevice(index, call_page)
    device.names()
    device.constants()
    device.read(often=True, faults=True, rarely=True)
    os.write(1, b"answered\n")
    return 0


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))  # a regular exit would wait for the driver's library
