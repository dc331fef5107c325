"""Runs Slurm's own programs, each with a deadline; `scontrol_text` or `json_documents` parse their output.

``scontrol --json`` exists since Slurm 23.02, ``squeue --json`` and ``sinfo --json`` since 21.08; 22.05 prints nodes as
JSON only through ``sinfo``. Later ``sinfo --json`` groups nodes, so it is used only where ``scontrol`` refuses the
option.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator, Sequence

from remediator.model.node_location import NodeLocation
from remediator.schedulers.slurm import json_documents, scontrol_text
from remediator.schedulers.slurm.controller_protocol import CommandDeadline, NotInstalledError, SlurmError
from remediator.schedulers.slurm.json_documents import DocumentError
from remediator.schedulers.slurm.slurm_options import SlurmOptions
from remediator.schedulers.slurm.slurm_records import Reservation, SlurmJob, SlurmNode

SEARCH_PATH = "/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin:/opt/slurm/bin"
DEATH_S = 0.5  # how long a killed program may take to exit; one blocked on a dead file system does not
LIST_BYTES_MAX = 100_000  # Linux accepts 128 KiB in one argument
_KEPT = ("HOME", "USER", "LANG", "SLURM_CONF")


class SlurmCommands:
    """`scontrol`, `squeue` and `sinfo` of one cluster, run as the current user."""

    def __init__(self, options: SlurmOptions) -> None:
        kept = {key: os.environ[key] for key in _KEPT if key in os.environ}
        path = f"{os.environ.get('PATH', '')}:{SEARCH_PATH}"
        self._env = kept | {"PATH": path, "SLURM_TIME_FORMAT": "standard", "TZ": "UTC"}
        if options.conf:
            self._env["SLURM_CONF"] = options.conf
        self._json = options.ask == "json"
        self._without_json = False  # scontrol refused the option: before 23.02
        self._undead: list[subprocess.Popen[bytes]] = []

    def nodes(self, due: CommandDeadline) -> list[SlurmNode]:
        """All nodes, hidden ones too."""
        if self._json:
            raw = self._json_nodes(due)
            try:
                return json_documents.parse_nodes_json(raw)
            except DocumentError as error:
                raise SlurmError(f"nodes as JSON: {error}; 'ask: text' reads every version") from error
        return scontrol_text.parse_scontrol_nodes(
            self._run(due, "scontrol", "show", "node", "--oneliner", "--all", "--details")
        )

    def _json_nodes(self, due: CommandDeadline) -> str:
        if not self._without_json:
            try:
                return self._run(due, "scontrol", "show", "nodes", "--all", "--json")
            except SlurmError as error:
                if "unrecognized option" not in str(error):
                    raise
                self._without_json = True
        return self._run(due, "sinfo", "--all", "--json")

    def node(self, name: str, due: CommandDeadline) -> SlurmNode | None:
        """One node, always from the text: the same in every version, and as exact as needed."""
        try:
            shown = self._run(due, "scontrol", "show", "node", name, "--oneliner", "--all", "--details")
        except SlurmError as error:
            if f"Node {name} not found" in str(error) or "Invalid node name" in str(error):
                return None
            raise
        return next((node for node in scontrol_text.parse_scontrol_nodes(shown) if node.name == name), None)

    def jobs(self, due: CommandDeadline) -> list[SlurmJob]:
        """The jobs on nodes."""
        states = "--states=R,S,CF,CG"
        if self._json:
            raw = self._run(due, "squeue", "--all", states, "--json")
            try:
                return json_documents.parse_jobs_json(raw)
            except DocumentError as error:
                raise SlurmError(f"squeue --json: {error}; 'ask: text' reads every version") from error
        queue = self._run(due, "squeue", "--all", "--noheader", states, f"--format={scontrol_text.QUEUE_FORMAT}")
        return scontrol_text.parse_squeue_lines(queue)

    def began(self, due: CommandDeadline) -> float | None:
        """``BOOT_TIME`` of ``scontrol show config``."""
        return scontrol_text.parse_slurmctld_start(self._run(due, "scontrol", "show", "config"))

    def drain(self, node: str, reason: str, due: CommandDeadline) -> None:
        """``scontrol update``."""
        self._run(due, "scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")

    def takes_lists(self, due: CommandDeadline) -> bool:  # noqa: ARG002 - slurmrestd has to ask
        """Always."""
        return True

    def drain_list(self, nodes: Sequence[str], reason: str, due: CommandDeadline) -> None:
        """``scontrol update`` of a host list, split where it would exceed the length of an argument."""
        for part in split_hostlist(nodes, LIST_BYTES_MAX):
            self.drain(part, reason, due)

    def resume(self, node: str, due: CommandDeadline) -> None:
        """``scontrol update``."""
        self._run(due, "scontrol", "update", f"nodename={node}", "state=resume")

    def job(self, name: str, due: CommandDeadline) -> SlurmJob | None:
        """``scontrol show job``."""
        try:
            return scontrol_text.parse_scontrol_job(self._run(due, "scontrol", "show", "job", name, "--oneliner"))
        except SlurmError as error:
            if "Invalid job id" in str(error):
                return None
            raise

    def requeue(self, job: str, due: CommandDeadline) -> None:
        """``scontrol requeue``; for batch jobs that allow it."""
        self._run(due, "scontrol", "requeue", job)

    def exclude(self, job: str, nodes: tuple[str, ...], due: CommandDeadline) -> None:
        """``scontrol update``; Slurm takes it only of a job that is queued."""
        self._run(due, "scontrol", "update", f"jobid={job}", f"excnodelist={','.join(nodes)}")

    def reservations(self, due: CommandDeadline) -> list[Reservation]:
        """``scontrol show reservation``."""
        return scontrol_text.parse_scontrol_reservations(
            self._run(due, "scontrol", "show", "reservation", "--oneliner", "--all")
        )

    def reserve(self, name: str, nodes: tuple[str, ...], minutes: int, user: str, due: CommandDeadline) -> None:
        """``scontrol create reservation``. MAINT: not lost time to accounting; IGNORE_JOBS: what runs may end."""
        what = (f"reservationname={name}", f"nodes={','.join(nodes)}", f"users={user}", "flags=MAINT,IGNORE_JOBS")
        self._run(due, "scontrol", "create", "reservation", *what, "starttime=now", f"duration={minutes}")

    def release(self, name: str, due: CommandDeadline) -> None:
        """``scontrol delete``."""
        self._run(due, "scontrol", "delete", f"reservationname={name}")

    def topology(self, due: CommandDeadline) -> dict[str, NodeLocation]:
        """``scontrol show topology``; without a topology plugin it prints nothing, or says so and fails."""
        try:
            return scontrol_text.parse_scontrol_topology(self._run(due, "scontrol", "show", "topology"))
        except SlurmError as error:
            if "topology" in str(error).partition(": ")[2].lower():
                return {}
            raise

    def _run(self, due: CommandDeadline, *argv: str) -> str:
        """What the command printed.

        Raises:
            SlurmError: it is not installed, gave no answer in time, or failed.
        """
        self._undead = [process for process in self._undead if process.poll() is None]
        if not due.left():
            raise SlurmError(f"no time left for {argv[0]}: no result within {due.seconds:g} s")
        try:
            process = subprocess.Popen(
                argv, env=self._env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except OSError as error:
            raise NotInstalledError(
                f"cannot run {argv[0]}: {error.strerror}; check that slurm-client is installed"
            ) from error
        try:
            out, err = (stream.decode(errors="replace") for stream in process.communicate(timeout=due.left()))
        except subprocess.TimeoutExpired:
            self._end(process)
            raise SlurmError(
                f"{argv[0]} gave no answer within {due.seconds:g} s; check that slurmctld is running"
            ) from None
        if process.returncode:
            raise SlurmError(f"{' '.join(argv[:3])}: {scontrol_text.collapse_white_space(err or out) or 'no message'}")
        return out

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=DEATH_S)
            return
        self._undead.append(process)


def split_hostlist(nodes: Sequence[str], bytes_max: int) -> Iterator[str]:
    """Yield host lists of all `nodes`, each of at most `bytes_max` bytes or one node.

    >>> list(split_hostlist(["n1", "n2", "gpu30"], 5))
    ['n1,n2', 'gpu30']
    """
    part: list[str] = []
    size = 0
    for node in nodes:
        length = len(node.encode()) + 1
        if part and size + length > bytes_max + 1:
            yield ",".join(part)
            part, size = [], 0
        part.append(node)
        size += length
    if part:
        yield ",".join(part)
