"""A rank of which nothing is left but its conversation with the launcher: rank 1's node is condemned, then all fail."""

from __future__ import annotations

import os
import sys

from healthd.trainer.exit_codes import ExitCode
from healthd.trainer.rendezvous_client import RendezvousClient, RendezvousError

DEADLINE_S = 60.0

rendezvous = RendezvousClient.from_env(1)
if rendezvous is None or os.environ["HEALTHD_ATTEMPT"] != "1":
    sys.exit(0)
rendezvous.arrive()
generation = rendezvous.wait_newer(-1, DEADLINE_S)
if generation is not None and rendezvous.member == 1:
    rendezvous.leave(ExitCode.CONDEMNED, "a test", replace=True)
    sys.exit(ExitCode.CONDEMNED)
if rendezvous.member == 0:
    try:
        rendezvous.wait_newer(0, DEADLINE_S)
    except RendezvousError:
        sys.exit(5)
    sys.exit(3)
sys.exit(4)
