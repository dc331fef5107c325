"""Stands for a rank under guard that obeys an order: `python leaving_rank.py CONDEMNED [OUTCOME [CODE]]`.

Its page says what the guard's would; it ends with 90 on the condemned node, else with 91, or with CODE.
"""

from __future__ import annotations

import os
import sys

from healthd.trainer.beacons.beacon import Acknowledgement, Beacon, MailboxOrder
from healthd.trainer.beacons.beacon_directory import prepare_directory
from healthd.trainer.beacons.beacon_page import OrderOutcome
from healthd.trainer.beacons.mailbox import post_order
from healthd.trainer.beacons.rank_environment import read_environment
from healthd.trainer.exit_codes import ExitCode


def main() -> None:
    """Leave."""
    condemned = sys.argv[1]
    outcome = OrderOutcome(sys.argv[2]) if len(sys.argv) > 2 else OrderOutcome.LEFT
    environment = read_environment(os.environ)
    mine = environment.place.node == condemned
    code = int(sys.argv[3]) if len(sys.argv) > 3 else int(ExitCode.CONDEMNED if mine else ExitCode.RELAUNCH)
    prepare_directory(environment.beacon_directory)
    beacon = Beacon.create(environment.beacon_directory, environment.place)
    post_order(beacon.path, MailboxOrder("o1", "checkpoint_then_eject", "a test", (condemned,), 9e9))
    beacon.acknowledge(Acknowledgement("o1", outcome, 1.0, exit_code=code))
    sys.stdout.flush()
    os._exit(code)


main()
