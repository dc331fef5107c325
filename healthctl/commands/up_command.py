"""`healthctl up`: runs this machine as a single-node cluster."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from healthctl.exit_codes import Exit, Failure, require_extra
from healthctl.rendering.blocks import escape_control_chars, format_facts

if TYPE_CHECKING:
    from healthctl.doctor.diagnosis import Diagnosis
    from healthctl.single_node.home_directory import HomeDirectory, ServicePorts
    from remediator.model.views import NodeView, StatusView

REMEDIATOR_PORT, HEALTHD_PORT = 15180, 15190


def _default_dir() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "gpu-healthd"


@click.command(
    epilog="Example: healthctl up --dir ~/try. Exit codes: 0 stopped by Ctrl-C, 2 wrong usage, 3 cannot start."
)
@click.option("--dir", "directory", type=click.Path(file_okay=False, path_type=Path),
              help="Directory for all files, readable only by you.  [default: ~/.local/state/gpu-healthd]")  # fmt: skip
@click.option("--node", help="Name of this node.  [default: its host name]")
@click.option("--port", type=click.IntRange(1, 65535),
              help=f"Port of the web pages and the API.  [default: {REMEDIATOR_PORT}, or a free one]")  # fmt: skip
@click.option("--accept-injected", is_flag=True, help="Accept test faults from 'healthctl inject', marked as injected.")
def up(directory: Path | None, node: str | None, port: int | None, *, accept_injected: bool) -> None:
    """Run this machine as a single-node cluster, with its own GPUs and kernel log, in observe mode.

    Starts the remediator (SQLite, local scheduler) and healthd, and prints the page's address and the token file. Ctrl-C
    stops both. With the same --dir, history is kept. Orders to reset or reboot are refused.
    """
    from vocabulary.identity import require_node_name

    try:
        name = require_node_name(node or socket.gethostname())
    except ValueError as error:
        raise Failure(f"--node: {error}", Exit.USAGE) from None
    os.umask(0o077)  # also for the programs that we start
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    with require_extra("remediator"):
        from healthctl.single_node.home_directory import HomeDirectory, RunningInstance
        from healthctl.single_node.token_provisioning import provision_tokens

        home = HomeDirectory((directory or _default_dir()).absolute())
        known = home.prepare()
        with home.take() as lock:
            provision_tokens(home, name)
            ports = _choose_ports(port)
            home.configure(name, ports, accept_injected=accept_injected)
            url = f"http://127.0.0.1:{ports.remediator}"
            home.say(lock, RunningInstance(os.getpid(), url, str(home.token_file)))
            _run_until_stopped(home, url, name, over, known=known)


def _choose_ports(wanted: int | None) -> ServicePorts:
    from healthctl.process_supervision.port_allocation import find_free_ports, is_port_free
    from healthctl.single_node.home_directory import ServicePorts

    if wanted is not None and not is_port_free(wanted):
        raise Failure(f"--port {wanted}: the port is in use; choose another", Exit.USAGE)
    free = find_free_ports(2)
    usual = (wanted or REMEDIATOR_PORT, HEALTHD_PORT)
    remediator, healthd = (port if is_port_free(port) else other for port, other in zip(usual, free, strict=True))
    return ServicePorts(remediator, healthd)


def _run_until_stopped(home: HomeDirectory, url: str, node: str, over: threading.Event, *, known: bool) -> None:
    from healthctl.api_client.remediator_client import RemediatorClient
    from healthctl.process_supervision.supervised_programs import ProgramError, SupervisedPrograms
    from healthctl.single_node.missing_requirements import has_gpus, list_missing_requirements
    from healthctl.single_node.single_node_cluster import SingleNodeCluster
    from remediator.model.views import StatusView

    click.echo(f"starting in {home.path}{' (with existing history)' if known else ''} …", err=True)
    with SupervisedPrograms(home.log_dir) as programs:
        machine = SingleNodeCluster(home, programs, over)
        try:
            machine.start()
            server = RemediatorClient(url, home.token_file.read_text().strip())
            missing = list(list_missing_requirements(home.healthd_config))  # while they start
            found = machine.first_word(server, node, with_gpus=has_gpus(missing))
            if found is not None:
                click.echo(_render_summary(home, url, found, _describe_mode(server.get("/v1/status", StatusView))))
                _print_missing_requirements(missing)
                click.echo("\nPress Ctrl-C to stop both.")
            for sentence in machine.watch():
                click.echo(f"healthctl: {escape_control_chars(sentence)}", err=True)
        except ProgramError as error:
            raise Failure(str(error)) from None
    with contextlib.suppress(OSError):  # a rank's beacon may be left in it
        home.beacons.rmdir()
    click.echo(f"stopped; all files remain in {home.path}", err=True)


_HEALTH = {"unknown": "health unknown (see below for what is missing)"}


def _describe_mode(status: StatusView) -> str:
    """What the mode does, also if an operator set it in an earlier run."""
    if status.mode == "observe":
        return "observe: shows what it would do, without acting"
    return f"{status.mode}, set by {status.mode_by}; to stop: healthctl mode observe"


def _render_summary(home: HomeDirectory, url: str, node: NodeView, mode: str) -> str:
    """Addresses and files, and how to use them."""
    where = format_facts(
        [
            ("page", f"{url}/"),
            ("token", f"{home.token_file} (admin token, for the web pages and healthctl)"),
            ("node", f"{node.node}, {_HEALTH.get(node.health, node.health)}, {_format_gpu_count(node)}"),
            ("mode", mode),
            ("logs", str(home.log_dir)),
        ]
    )
    variables = {
        "HEALTHCTL_SERVER": url,
        "HEALTHCTL_TOKEN_FILE": str(home.token_file),
        "HEALTHD_SOCKET": str(home.socket),
        "HEALTHD_BEACON_DIR": str(home.beacons),
    }
    lines = [f"  export {name}={shlex.quote(value)}" for name, value in variables.items()]
    return "\n".join([where, "", "In another terminal:", *lines, "  healthctl status"])


def _format_gpu_count(node: NodeView) -> str:
    names = sorted({gpu.name for gpu in node.gpus})
    count = len(node.gpus)
    return f"{count} GPU{'' if count == 1 else 's'} ({', '.join(names)})" if count else "no GPU reported"


def _print_missing_requirements(missing: Iterable[Diagnosis]) -> None:
    for advice in missing:
        click.echo(f"\n{escape_control_chars(f'{advice.state.value}: {advice.part}: {advice.found}')}")
        for text in (advice.why, advice.todo):
            if text:
                click.echo(escape_control_chars(f"         {text}"))
