"""A rank of a tiny job: real guard, real beacon, a checkpoint that is a chain of hashes; no torch.

`trainer.py PLACE EVERY PACE`: trains until the step that PLACE/last_step names. The ranks meet at each step, over their nodes' network.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from healthd.trainer.guard import Guard
from tests.chaos.world.rank_rendezvous import Meeting, enter


class FileStore:
    """What the ranks share: one locked file of keys, as torch's store of that name."""

    def __init__(self, path: Path) -> None:
        path.touch()
        self._file = path.open("r+")

    def add(self, key: str, amount: int, /) -> int:
        """Add to a counter; its new value."""

        def more(held: dict[str, str]) -> str:
            held[key] = str(int(held.get(key, "0")) + amount)
            return held[key]

        return int(self._locked(more))

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """Set a key that holds what is expected; what it holds now."""

        def maybe(held: dict[str, str]) -> str:
            if held.get(key, "") == expected:
                held[key] = desired
            return held.get(key, "")

        return self._locked(maybe).encode()

    def _locked(self, change: object) -> str:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            self._file.seek(0)
            held = json.loads(self._file.read() or "{}")
            answer = change(held)  # type: ignore[operator]  # one of the two above
            self._file.seek(0)
            self._file.truncate()
            self._file.write(json.dumps(held))
            self._file.flush()
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)
        return str(answer)


class Rank:
    """One process of the job."""

    def __init__(self, place: Path, every: int, pace_s: float) -> None:
        self.place, self.every, self.pace_s = place, every, pace_s
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.attempt = f"{os.environ.get('HEALTHD_ATTEMPT', '0')}-{os.environ.get('MASTER_PORT', '0')}-{os.getppid()}"
        self.shared = place / "meetings" / self.attempt
        self.shared.mkdir(parents=True, exist_ok=True)
        self.meeting = Meeting(self.shared, self.rank, self.world, enter(os.environ["HEALTHD_NODE"]))
        self.chain = ""

    def run(self) -> None:
        """Load, train, leave, however that comes about."""
        try:
            self.write("finished", self.train(self.load()))
        finally:
            self.meeting.leave()

    def train(self, step: int) -> int:
        """From this step to the last one; the step after it."""
        with Guard.from_env(store=FileStore(self.shared / "store")) as guard:
            guard.on_abort(lambda _: None)
            self.write("began", step)
            while step <= self.last_step():
                with guard.step(step) as s:
                    time.sleep(self.pace_s)
                    self.chain = follow(self.chain, step)
                    self.meeting.meet(f"step-{step}")
                    self.write("step", step)
                    if s.checkpoint_due or (step + 1) % self.every == 0:
                        s.saved(str(self.save(step, asked=s.checkpoint_due)))
                step += 1
        return step

    def last_step(self) -> int:
        """The run writes it at least a second ahead of the ranks."""
        file = self.place / "last_step"
        return int(file.read_text()) if file.exists() else sys.maxsize

    def load(self) -> int:
        """Go on after the newest whole checkpoint."""
        found = sorted(self.place.glob("step-*"))
        if not found:
            return 0
        state = json.loads((found[-1] / "rank-0.json").read_text())
        self.chain = state["chain"]
        return int(state["step"]) + 1

    def save(self, step: int, *, asked: bool) -> Path:
        """Each rank its file, aside; all of them: rank 0 renames."""
        if (self.place / f"die-in-save-{self.rank}").exists():
            (self.place / f"die-in-save-{self.rank}").unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        whole = self.place / f"step-{step:09d}"
        aside = self.place / f".step-{step:09d}"
        aside.mkdir(exist_ok=True)
        state = {"step": step, "rank": self.rank, "world": self.world, "chain": self.chain}
        (aside / f"rank-{self.rank}.json").write_text(json.dumps(state))
        self.meeting.meet(f"written-{step}")
        if self.rank == 0:
            if whole.exists():
                shutil.rmtree(whole)
            aside.rename(whole)
        self.meeting.meet(f"saved-{step}")
        self.write("saved", step, asked=asked)
        return whole

    def write(self, event: str, step: int, **more: object) -> None:
        """A line of the step log."""
        said = {"at": time.time(), "mono": time.monotonic(), "event": event, "step": step, "rank": self.rank}
        said |= {"world": self.world, "attempt": self.attempt, "node": os.environ.get("HEALTHD_NODE", ""), **more}
        with (self.place / f"steps-{self.rank}.jsonl").open("a") as file:
            file.write(json.dumps(said) + "\n")


def follow(chain: str, step: int) -> str:
    """The chain after one more step."""
    return hashlib.sha256(f"{chain}{step}".encode()).hexdigest()


if __name__ == "__main__":
    Rank(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])).run()
