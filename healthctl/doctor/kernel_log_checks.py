"""Checks of the kernel log, the first evidence source of nearly every GPU fault."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator

from healthctl.doctor.diagnosis import Diagnosis, diagnose_absent, diagnose_bad, diagnose_good
from healthd.config import Config, LogSource
from healthd.kernel_log.systemd_journal import COMMAND

_WHY = "the driver logs there which GPU failed, and how; without it a node is never reported healthy"


def check_kernel_log(config: Config) -> Iterator[Diagnosis]:
    """Check whether the kernel log can be read, and how."""
    path, means = config.kernel_log.path, config.kernel_log.source
    journal = shutil.which(COMMAND[0])
    if means is LogSource.JOURNAL:
        todo = "install systemd's journal, or set kernel_log.source to auto"
        yield (
            diagnose_good("kernel log", f"by {journal}")
            if journal
            else diagnose_bad("kernel log", "no journalctl", _WHY, todo)
        )
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if means is LogSource.AUTO and journal:
            why = "healthd follows the journal instead, with a small delay and in a child process"
            yield diagnose_absent("kernel log", f"{path}: {error.strerror}", why)
            return
        todo = "run as root with CAP_SYSLOG (in a container: privileged, with /dev/kmsg of the host)"
        yield diagnose_bad("kernel log", f"{path}: {error.strerror}", _WHY, todo)
        return
    try:
        os.read(descriptor, 8192)
    except BlockingIOError:
        pass  # no new record, but readable
    except BrokenPipeError:
        pass  # records were overwritten while reading
    except OSError as error:
        yield diagnose_bad(
            "kernel log", f"{path}: opens, but cannot be read: {error.strerror}", _WHY, "check kernel.dmesg_restrict"
        )
        return
    finally:
        os.close(descriptor)
    injected = "; accepts marked test faults" if config.accept_injected else ""
    if stat.S_ISREG(path.stat().st_mode) and not config.kernel_log.trust_file:
        why = "users of this node may be able to write to a file, so its lines count only with NVML as a second evidence source"
        yield diagnose_absent("kernel log", f"{path} is a plain file{injected}", why, "read /dev/kmsg or the journal")
        return
    yield diagnose_good("kernel log", f"{path} can be read{injected}")
