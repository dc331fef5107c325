"""A job's state in the memory of its nodes: it outlives the job's processes, and is lost when a node is powered off.

Every rank holds the whole state, so the copy on its own node is also the one that the product would put on a neighbour's.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from bench.ranks.linear_model import LinearModel
from healthd.trainer.checkpoint_storage.checkpoint_files import CheckpointError
from healthd.trainer.checkpoint_storage.checksums import SHA256, Checksum
from healthd.trainer.checkpoint_storage.state_copies import StateCopies, StateCopy


class NodeMemory:
    """The memory file systems of all nodes, below one directory of this machine's."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def copies(self, node: str, job: str) -> MemoryCopies:
        """What a job has on a node."""
        return MemoryCopies(self.root / node / job)

    def empty(self, node: str) -> None:
        """The node is without power."""
        shutil.rmtree(self.root / node, ignore_errors=True)

    def newest_steps(self, nodes: set[str]) -> dict[str, int]:
        """Of each job, the newest step that one of these nodes holds."""
        found: dict[str, int] = {}
        for place in (place for node in nodes for place in (self.root / node).glob("*")):
            for copy in StateCopies(place).held():
                found[place.name] = max(found.get(place.name, 0), copy.step)
        return found


class MemoryCopies:
    """The copies of one job on one node."""

    def __init__(self, directory: Path) -> None:
        self._copies = StateCopies(directory)

    def save(self, model: LinearModel, rank: int, world: int, group: tuple[int, int]) -> None:
        """Keep the state, and nothing older. Args: `group`: attempt and generation of the ranks that trained it."""
        data = model.to_bytes()
        save = f"{group[0] & 0xFFFF:04x}{group[1] & 0xFFFF:04x}"
        copy = StateCopy(
            model.step, world, rank, save, Checksum(SHA256, hashlib.sha256(data).hexdigest()), replica=True
        )
        aside = self._copies.aside("own", rank)
        aside.write_bytes(data)
        self._copies.finish(aside, copy)
        self._copies.forget(but=copy.step)

    def load(self, model: LinearModel) -> bool:
        """Take the newest whole copy; whether there is one."""
        for copy in sorted(self._copies.held(), reverse=True):
            try:
                self._copies.check(copy)
            except CheckpointError:
                continue
            model.take_bytes(self._copies.path(copy).read_bytes())
            return True
        return False
