"""The command ``healthd --config FILE``: reads the configuration and runs the daemon until it is stopped.

Exit codes: 0 stopped on request · 1 cannot run (state directory, port) · 2 wrong usage or configuration.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from pathlib import Path

import click

from healthd.config import ConfigError, load_node_config
from vocabulary.fault_catalogue.catalogue_file import load_catalogue
from vocabulary.messages import message_decoders
from vocabulary.secret_file import read_by_others

_log = logging.getLogger("healthd")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config", "path", type=click.Path(path_type=Path), required=True, help="The node's YAML configuration file."
)
@click.option("--node", envvar="HEALTHD_NODE", help="This node's name, instead of the file's.  [env: HEALTHD_NODE]")
@click.option("--verbose", is_flag=True, help="Also log details.")
def main(path: Path, node: str | None, verbose: bool) -> None:  # noqa: FBT001 - click passes flags so
    """Watch this GPU node: find its faults, report them to the remediator, perform its orders."""
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("urllib3").setLevel(logging.WARNING)
    try:
        config = load_node_config(path, node)
    except ConfigError as error:
        _log.error("%s", error)
        sys.exit(2)
    catalogue = load_catalogue()
    # Reading YAML takes several MiB for a moment. Importing the daemon afterwards reuses that memory.
    from healthd.daemon import AlreadyRunning, Daemon
    from healthd.host import Host
    from healthd.storage.node_database import DatabaseFull

    message_decoders.build_decoders()
    try:
        daemon = Daemon(config, Host(nvml_library=config.nvml.library), catalogue)
    except (AlreadyRunning, DatabaseFull, OSError) as error:
        _log.error("cannot run: %s", error)
        sys.exit(1)
    for secret in filter(None, (config.remediator.token_file, config.remediator.enrol_token_file)):
        if words := read_by_others(secret):
            _log.warning("%s", words)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: daemon.stop())
    if not daemon.run():
        # A thread is in a write that may never return. Closing the database would wait for it, so skip the cleanup.
        logging.shutdown()
        os._exit(0)


if __name__ == "__main__":
    main()
