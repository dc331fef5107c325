"""Ctrl-C ends a command at once, with a code of its own and without a traceback."""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
import sys
from pathlib import Path

HEALTHCTL = [sys.executable, "-m", "healthctl"]
DEADLINE_S = 60


def test_while_a_server_is_waited_for(token_file: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(DEADLINE_S)
        server = f"http://127.0.0.1:{silent.getsockname()[1]}"
        command = [*HEALTHCTL, "nodes", "--server", server, "--token-file", str(token_file)]
        with (
            subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"NO_PROXY": "*"}
            ) as process,
            silent.accept()[0] as connection,
        ):
            connection.settimeout(DEADLINE_S)
            assert connection.recv(1).startswith(b"G"), "it has asked"
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, *said) == (130, "", "")


def test_while_a_person_types() -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen([*HEALTHCTL, "xid", "parse", "-"], stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        os.write(ours, b"NVRM: Xid (PCI:0000:3b:00): 79, x\n")
        said = b""
        while b"79" not in said.partition(b"\n")[2]:
            said += os.read(ours, 1 << 16)
        process.send_signal(signal.SIGINT)
        assert process.wait(DEADLINE_S) == 130
    os.close(ours)
    assert b"Traceback" not in said
