"""The kernel log: the first witness of nearly every GPU fault."""

from __future__ import annotations

import os
from collections.abc import Iterator

from healthctl.doctor.advice import Advice, bad, good
from healthd.config import Config

_WHY = "the driver says there which GPU failed, and how; without it a node is never called healthy"


def kernel_log(config: Config) -> Iterator[Advice]:
    """Can it be read?"""
    path = config.kernel_log.path
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        todo = "run as root with CAP_SYSLOG (in a container: privileged, with /dev/kmsg of the host)"
        yield bad("kernel log", f"{path}: {error.strerror}", _WHY, todo)
        return
    try:
        os.read(descriptor, 8192)
    except BlockingIOError:
        pass  # nothing new, but it may be read
    except BrokenPipeError:
        pass  # it overran while we looked
    except OSError as error:
        yield bad(
            "kernel log", f"{path}: opens, but cannot be read: {error.strerror}", _WHY, "check kernel.dmesg_restrict"
        )
        return
    finally:
        os.close(descriptor)
    injected = "; takes marked test faults" if config.accept_injected else ""
    yield good("kernel log", f"{path} can be read{injected}")
