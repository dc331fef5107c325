"""healthd on a machine that is a folder: ``healthd_on_machine.py CONFIG FOLDER``. Everything else is as ever."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from healthd.config import load_node_config
from healthd.daemon import Daemon
from healthd.host import Host
from vocabulary.fault_catalogue.catalogue_file import load_catalogue


def main() -> None:
    config = load_node_config(Path(sys.argv[1]))
    daemon = Daemon(config, Host(root=Path(sys.argv[2]), nvml_library=config.nvml.library), load_catalogue())
    signal.signal(signal.SIGTERM, lambda *_: daemon.stop())
    daemon.run()


if __name__ == "__main__":
    main()
