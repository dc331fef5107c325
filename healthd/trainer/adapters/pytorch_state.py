"""The whole state of a training run under PyTorch: what must come back for the next step to be the one it would have been."""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Mapping
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)


class Stateful(Protocol):
    """What schedulers, scalers, samplers, data loaders, averages and counters have in common."""

    def state_dict(self) -> Any:
        """The state, as a value that can be pickled."""
        ...

    def load_state_dict(self, state: Any, /) -> Any:
        """Take it back."""
        ...


class Counters(dict[str, float]):
    """Named numbers: tokens seen, best loss, restarts. The same on every rank."""

    def state_dict(self) -> dict[str, float]:
        """A copy."""
        return dict(self)

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Replace all of them."""
        self.clear()
        self.update(state)


class TrainingState:
    """Any number of named objects, each saved the way that fits it.

    - model, optimizer and every `torch.nn.Module` among the named ones (an `AveragedModel` for EMA): tensors, sharded as
      they are (FSDP2), or dealt over the ranks where all have the same (DDP); they load at any world size;
    - other named objects: one value, the same on every rank (scheduler, scaler, sampler, `Counters`);
    - `per_rank` objects and this rank's random generators: a value per rank, which comes back at equal world size only.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer | tuple[torch.optim.Optimizer, ...] = (),
        *,
        per_rank: Mapping[str, Stateful | torch.Generator] | None = None,
        **shared: Stateful,
    ) -> None:
        """Args: `model`: plain or wrapped (DDP, FSDP2); `optimizer`: one or more of that model; the rest: see above."""
        self._model = model
        self._optimizers = optimizer if isinstance(optimizer, tuple) else (optimizer,)
        self._modules = {name: each for name, each in shared.items() if isinstance(each, torch.nn.Module)}
        self._shared = {name: each for name, each in shared.items() if name not in self._modules}
        self._per_rank: dict[str, Stateful] = {"generators": Generators()}
        for name, each in (per_rank or {}).items():
            self._per_rank[name] = _OneGenerator(each) if isinstance(each, torch.Generator) else each

    def collect(self, *, with_rank: bool = True) -> dict[str, Any]:
        """The state as a tree: what models and optimizers gave is live (tensors, a module's extra state), the rest a copy.

        Args:
            with_rank: also what belongs to this rank alone.
        """
        model, optimizer = get_state_dict(self._model, self._optimizers)
        tree: dict[str, Any] = {"model": model, "optimizer": optimizer}
        if self._modules:
            tree["modules"] = {name: get_model_state_dict(module) for name, module in self._modules.items()}
        if self._shared:
            tree["shared"] = {name: _packed(each) for name, each in self._shared.items()}
        if with_rank:
            tree["ranks"] = {str(dist.get_rank()): {name: _packed(each) for name, each in self._per_rank.items()}}
        return tree

    def restore(self, tree: dict[str, Any]) -> None:
        """Put a tree that was filled from a checkpoint back into the objects; the random generators come last."""
        set_state_dict(
            self._model, self._optimizers, model_state_dict=tree["model"], optim_state_dict=tree["optimizer"]
        )
        for name, module in self._modules.items():
            set_model_state_dict(module, tree["modules"][name])
        for name, each in self._shared.items():
            each.load_state_dict(_unpacked(tree["shared"][name]))
        own = tree.get("ranks", {}).get(str(dist.get_rank()), {})
        for name in reversed(self._per_rank):
            if name in own:
                self._per_rank[name].load_state_dict(_unpacked(own[name]))


class Generators:
    """This process' random generators: Python's, NumPy's global one if it is in use, PyTorch's on the CPU and the GPU."""

    def state_dict(self) -> dict[str, Any]:
        """All that are there."""
        states: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
        if "numpy" in sys.modules:
            states["numpy"] = sys.modules["numpy"].random.get_state()
        if torch.cuda.is_available():
            states["cuda"] = torch.cuda.get_rng_state()
        return states

    def load_state_dict(self, states: dict[str, Any]) -> None:
        """All that were saved and are here too."""
        random.setstate(states["python"])
        torch.set_rng_state(states["torch"])
        if "numpy" in states and "numpy" in sys.modules:
            sys.modules["numpy"].random.set_state(states["numpy"])
        if "cuda" in states and torch.cuda.is_available():
            torch.cuda.set_rng_state(states["cuda"])


class _OneGenerator:
    """A generator of the user's own."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    def state_dict(self) -> torch.Tensor:
        return self._generator.get_state()

    def load_state_dict(self, state: torch.Tensor) -> None:
        self._generator.set_state(state)


def _packed(each: Stateful) -> bytes:
    return pickle.dumps(each.state_dict())


def _unpacked(data: bytes) -> Any:
    return pickle.loads(data)  # noqa: S301 - a job's own checkpoint; DCP's metadata beside it is a pickle as well
