"""The whole state of a training run under PyTorch: what must come back for the next step to be the one it would have been."""

from __future__ import annotations

import contextlib
import pickle
import random
import sys
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)


class Stateful(Protocol):
    """What schedulers, scalers, samplers, data loaders, averages and counters have in common."""

    def state_dict(self) -> Any:
        """The state, as a value that can be pickled."""

    def load_state_dict(self, state: Any, /) -> Any:
        """Take it back."""


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
            self._per_rank[name] = _UserGenerator(each) if isinstance(each, torch.Generator) else each

    @property
    def optimizers(self) -> tuple[torch.optim.Optimizer, ...]:
        """Those of the model."""
        return self._optimizers

    def collect(self) -> dict[str, Any]:
        """The state as a tree to be saved: tensors and a module's extra state are live, the rest is a copy.

        An optimizer that has made no step has no state, and neither has a parameter that never got a gradient. That is saved as it is.
        """
        with _prevent_optimizer_step(self._optimizers):
            return self._tree(with_rank=True)

    def collect_targets(self, has_state: Collection[str], *, with_rank: bool = True) -> dict[str, Any]:
        """A tree of the same shape to load a checkpoint into. Where an optimizer lacks some of its state, all of it is created again.

        Args:
            has_state: names of the parameters for which the checkpoint holds optimizer state (`list_parameters_with_state`).
            with_rank: also what belongs to this rank alone.
        """
        with _prepare_empty_optimizers(self._optimizers):
            tree = self._tree(with_rank=with_rank)
        state = tree["optimizer"].get("state", {})
        tree["optimizer"] = _attach_state(
            tree["optimizer"], {name: each for name, each in state.items() if name in has_state}
        )
        return tree

    def _tree(self, *, with_rank: bool) -> dict[str, Any]:
        model, optimizer = get_state_dict(self._model, self._optimizers)
        tree: dict[str, Any] = {"model": model, "optimizer": _attach_state(optimizer, optimizer.get("state", {}))}
        if self._modules:
            tree["modules"] = {name: get_model_state_dict(module) for name, module in self._modules.items()}
        if self._shared:
            tree["shared"] = {name: _pickle_state(each) for name, each in self._shared.items()}
        if with_rank:
            tree["ranks"] = {str(dist.get_rank()): {name: _pickle_state(each) for name, each in self._per_rank.items()}}
        return tree

    def restore(self, tree: dict[str, Any]) -> None:
        """Put a tree of `collect_targets` that was filled from a checkpoint into the objects; the random generators come last."""
        self._restore_optimized(tree["model"], tree["optimizer"])
        for name, module in self._modules.items():
            set_model_state_dict(module, tree["modules"][name])
        for name, each in self._shared.items():
            each.load_state_dict(_unpickle_state(tree["shared"][name]))
        own = tree.get("ranks", {}).get(str(dist.get_rank()), {})
        for name in reversed(self._per_rank):
            if name in own:
                self._per_rank[name].load_state_dict(_unpickle_state(own[name]))

    def _restore_optimized(self, model: dict[str, Any], optimizer: dict[str, Any]) -> None:
        """Model and optimizers. A parameter whose state was not saved has none afterwards, as in the run that saved."""
        present = get_optimizer_state_dict(self._model, self._optimizers) if self._optimizers else {}
        saved = optimizer.get("state", {})
        absent = present.get("state", {}).keys() - saved.keys()
        set_model_state_dict(self._model, model)
        if not self._optimizers:
            return
        complete = {**optimizer, "state": {**present.get("state", {}), **saved}}  # torch wants one for each parameter,
        options = StateDictOptions(strict=False)  # and else an optimizer without any, as SGD, stands alone
        set_optimizer_state_dict(self._model, self._optimizers, complete, options=options)
        if absent:
            names = [name for group in present["param_groups"] for name in group["params"]]
            owners = [(each, p) for each in self._optimizers for group in each.param_groups for p in group["params"]]
            for name, (owner, parameter) in zip(names, owners, strict=True):
                if name in absent:
                    owner.state.pop(parameter, None)


def list_parameters_with_state(paths: Collection[tuple[Any, ...]]) -> set[str]:
    """Names of the parameters for which a saved tree with these paths of leaves holds optimizer state."""
    return {path[2] for path in paths if len(path) > 2 and path[:2] == ("optimizer", "state")}


def _attach_state(optimizer: Mapping[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """The same with this state. Where there is none the key is left out: an empty value would be asked for when loading."""
    rest = {key: value for key, value in optimizer.items() if key != "state"}
    return {**rest, "state": state} if state else rest


@contextlib.contextmanager
def _prevent_optimizer_step(optimizers: tuple[torch.optim.Optimizer, ...]) -> Iterator[None]:
    """Keep torch from making a step with zero gradients, which it does where it finds neither state nor gradients.

    That step would stay in the running optimizer and in the checkpoint: Adam would count from 1. One gradient prevents it.
    """
    placed = []
    for optimizer in optimizers:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        if parameters and not optimizer.state and all(parameter.grad is None for parameter in parameters):
            smallest = min(parameters, key=torch.Tensor.numel)
            smallest.grad = torch.zeros_like(smallest)
            placed.append(smallest)
    try:
        yield
    finally:
        for parameter in placed:
            parameter.grad = None


@contextlib.contextmanager
def _prepare_empty_optimizers(optimizers: tuple[torch.optim.Optimizer, ...]) -> Iterator[None]:
    """Optimizers without gradients, and without a state that is only partly there.

    Only then does torch make the whole state that a checkpoint is read into. A state that is whole stays: Adagrad makes it
    once, when it is constructed.
    """
    parameters = [p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]
    gradients = [parameter.grad for parameter in parameters]
    for optimizer in optimizers:
        trained = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        if any(parameter not in optimizer.state for parameter in trained):
            optimizer.state.clear()
    for parameter in parameters:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient


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


class _UserGenerator:
    """A generator of the user's own."""

    def __init__(self, generator: torch.Generator) -> None:
        self._generator = generator

    def state_dict(self) -> torch.Tensor:
        return self._generator.get_state()

    def load_state_dict(self, state: torch.Tensor) -> None:
        self._generator.set_state(state)


def _pickle_state(each: Stateful) -> bytes:
    return pickle.dumps(each.state_dict())


def _unpickle_state(data: bytes) -> Any:
    return pickle.loads(data)  # noqa: S301 - a job's own checkpoint; DCP's metadata beside it is a pickle as well
