"""Stands for a rank under guard that obeys an order: `python leaving_rank.py CONDEMNED [OUTCOME [CODE]]`.

Its page says what the guard's would; it ends with 90 on the condemned node, else with 91, or with CODE.
"""

from __future__ import annotations

import os
import sys

from healthd.trainer.beacon import Acknowledgement, Beacon, MailboxOrder, post_order
from healthd.trainer.environment import read_environment
from healthd.trainer.exits import Exit
from healthd.trainer.page import Outcome
from healthd.trainer.pages import prepare_directory


def main() -> None:
    """Leave."""
    condemned = sys.argv[1]
    outcome = Outcome(sys.argv[2]) if len(sys.argv) > 2 else Outcome.LEFT
    environment = read_environment(os.environ)
    mine = environment.place.node == condemned
    code = int(sys.argv[3]) if len(sys.argv) > 3 else int(Exit.CONDEMNED if mine else Exit.RELAUNCH)
    prepare_directory(environment.beacon_directory)
    beacon = Beacon.create(environment.beacon_directory, environment.place)
    post_order(beacon.path, MailboxOrder("o1", "checkpoint_then_eject", "a test", (condemned,), 9e9))
    beacon.acknowledge(Acknowledgement("o1", outcome, 1.0, exit_code=code))
    sys.stdout.flush()
    os._exit(code)


main()
