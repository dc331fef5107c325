"""A training job for end-to-end tests: the example under the launcher, real processes, real gloo, real pages."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from healthctl.demo.training import COMMAND
from healthd.trainer.beacons.beacon import MailboxOrder, read_all_pages
from healthd.trainer.beacons.beacon_directory import prepare_directory
from healthd.trainer.beacons.mailbox import post_order
from healthd.trainer.beacons.page_reader import BeaconView

DEADLINE_S = 90.0
STEPS, REFERENCE_STEPS = 24, 30


class TrainingJob:
    """One job: its pages, its checkpoints, its losses, and the launcher while it runs."""

    command: Sequence[str] = COMMAND  # of a rank

    def __init__(self, place: Path, *, nodes: Sequence[str] = ("n0", "n1"), beacons: bool = True) -> None:
        self.place = place
        self.nodes = nodes
        self.beacons = place / "beacons"
        self.checkpoints = place / "checkpoints"
        self._events, self._losses = place / "events.jsonl", place / "losses.jsonl"
        self._launcher: subprocess.Popen[bytes] | None = None
        if beacons:
            prepare_directory(str(self.beacons))

    def start(
        self, *options: str, steps: int = STEPS, every: int = 8, pace: float = 0.0, more: Sequence[str] = ()
    ) -> TrainingJob:
        """Launch it (again)."""
        training = [*self.command, *more, f"--steps={steps}", f"--every={every}", f"--step-seconds={pace}"]
        training += [f"--checkpoints={self.checkpoints}", f"--losses={self._losses}"]
        argv = [
            sys.executable,
            "-m",
            "healthctl.main",
            "launch",
            "--backend=local",
            f"--node-names={','.join(self.nodes)}",
        ]
        argv += [f"--events={self._events}", "--gate=off", *options, "--", *training]
        environ = {
            **os.environ,
            "HEALTHD_BEACON_DIR": str(self.beacons),
            "HEALTHD_JOB": "job",
            "HEALTHD_COPY_STEPS": "1",
        }
        with (self.place / "log").open("ab") as log:
            self._launcher = subprocess.Popen(argv, env=environ, stdout=log, stderr=log)
        return self

    def finish(self) -> int:
        """Wait for the launcher's end; its exit code."""
        assert self._launcher is not None
        return self._launcher.wait(DEADLINE_S)

    def terminate(self) -> None:
        """SIGTERM to the launcher."""
        assert self._launcher is not None
        self._launcher.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """End whatever still runs: the ranks die with their launcher, a stopped one too."""
        if self._launcher is not None and self._launcher.poll() is None:
            self._launcher.kill()
            self._launcher.wait()

    def log(self) -> str:
        """What launcher and ranks said."""
        return (self.place / "log").read_text(errors="replace")

    def ranks(self, *, world: int, step: int, attempt: int = 1) -> list[BeaconView]:
        """The living ranks of an attempt, once all of them are at `step` or past it."""

        def there() -> list[BeaconView]:
            views = [v for v in self.views(attempt) if v.alive and v.state.step >= step]
            return views if len(views) == world else []

        return self.until(there, f"{world} ranks at step {step}")

    def views(self, attempt: int = 1) -> list[BeaconView]:
        """All pages of an attempt, by rank."""
        return sorted(
            (v for v in read_all_pages(str(self.beacons))[0] if v.identity.attempt == attempt),
            key=lambda v: v.identity.rank,
        )

    def until(self, what: Callable[[], list[BeaconView]], why: str) -> list[BeaconView]:
        """Poll until `what` answers something."""
        end = time.monotonic() + DEADLINE_S
        while not (found := what()):
            assert time.monotonic() < end, f"{why}: not within {DEADLINE_S} s\n{self.log()}"
            assert self._launcher is None or self._launcher.poll() is None, f"{why}: the job is over\n{self.log()}"
            time.sleep(0.002)
        return found

    def order(
        self,
        views: Sequence[BeaconView],
        kind: str = "checkpoint_then_eject",
        *,
        condemned: str = "n1",
        before_step: int = -1,
    ) -> MailboxOrder:
        """Put one order into these ranks' mailboxes."""
        order = MailboxOrder("o1", kind, "a test", (condemned,), time.time() + 600, before_step=before_step)
        for view in views:
            post_order(view.path, order)
        return order

    def events(self, kind: str) -> list[dict[str, object]]:
        """The launcher's events of one kind."""
        found = [json.loads(line) for line in self._events.read_text().splitlines()]
        return [event for event in found if event["event"] == kind]

    def codes(self, attempt: int) -> list[object]:
        """How the ranks of an attempt ended."""
        ranks = self.events("attempt_ended")[attempt - 1]["ranks"]
        assert isinstance(ranks, list)
        return [rank["code"] for rank in ranks]

    def steps(self) -> list[int]:
        """The steps in the order they were trained."""
        return [json.loads(line)["step"] for line in self._losses.read_text().splitlines()]

    def losses(self) -> dict[int, str]:
        """Each step's loss, all its bits; the last where a step was trained twice."""
        return {(each := json.loads(line))["step"]: each["loss"] for line in self._losses.read_text().splitlines()}


class References:
    """Losses of undisturbed runs, by world size. Each is trained once for all processes that share the folder `kept`."""

    def __init__(self, kept: Path) -> None:
        self._kept = kept

    def losses(self, world: int, steps: int = STEPS) -> dict[int, str]:
        """Of the first steps: they do not depend on how many follow."""
        assert steps <= REFERENCE_STEPS
        with (self._kept / f"undisturbed-{world}.json").open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            found = file.read() or self._train(world)
            file.truncate(0)
            file.write(found)
        known = {int(step): loss for step, loss in json.loads(found).items()}
        return {step: known[step] for step in range(steps)}

    def _train(self, world: int) -> str:
        with tempfile.TemporaryDirectory() as place:
            job = TrainingJob(Path(place), nodes=[f"n{rank}" for rank in range(world)])
            assert job.start(steps=REFERENCE_STEPS, every=1000).finish() == 0, job.log()
            losses = job.losses()
        assert sorted(losses) == list(range(REFERENCE_STEPS))
        return json.dumps(losses)
