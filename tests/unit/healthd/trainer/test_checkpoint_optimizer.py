"""Optimizers that have made no step, or not for every parameter: what is saved of them comes back, and saving changes nothing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from healthd.trainer.adapters.pytorch import Counters, TrainingCheckpoints, TrainingState
from healthd.trainer.adapters.pytorch_peer_copies import PeerCopies
from healthd.trainer.checkpoint_storage.checkpoint_files import CheckpointError

pytestmark = pytest.mark.torch

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.1),
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "SGD with momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, dampening=0.5),
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
}


@pytest.fixture(autouse=True)
def one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Job:
    """A model of two layers, of which a step may use one only."""

    def __init__(self, kind: str) -> None:
        torch.manual_seed(0)
        self.model = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.optimizer = OPTIMIZERS[kind](self.model.parameters())
        self.state = TrainingState(self.model, self.optimizer)

    def backward(self, layers: int) -> None:
        x = torch.ones(1, 3)
        for layer in self.model[:layers]:
            x = layer(x)
        x.square().sum().backward()

    def step(self, layers: int) -> None:
        self.optimizer.zero_grad()
        self.backward(layers)
        self.optimizer.step()

    def values(self) -> list[float]:
        return [value for parameter in self.model.parameters() for value in parameter.flatten().tolist()]


def nothing(_: Job) -> None: ...


BEFORE: dict[str, Callable[[Job], None]] = {
    "nothing": nothing,
    "gradients, no step": lambda job: job.backward(2),
    "a step that used one layer": lambda job: job.step(1),
    "a step that used both": lambda job: job.step(2),
}


def through_files(place: Path, saved: Job, loaded: Job) -> None:
    TrainingCheckpoints(place, saved.state).save(4)
    assert TrainingCheckpoints(place, loaded.state).load_latest() == 5


def through_memory(place: Path, saved: Job, loaded: Job) -> None:
    copies = PeerCopies(place, saved.state)
    copies.save(4)
    copies.close()
    assert PeerCopies(place, loaded.state).load() == 5


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("saved_after", BEFORE)
@pytest.mark.parametrize("loaded_after", BEFORE)
@pytest.mark.parametrize("through", [through_files, through_memory])
def test_a_resume_goes_on_as_if_nothing_had_been_saved_or_loaded(
    kind: str, saved_after: str, loaded_after: str, through: Callable[[Path, Job, Job], None], tmp_path: Path
) -> None:
    straight, saved, loaded = Job(kind), Job(kind), Job(kind)
    BEFORE[saved_after](straight)
    BEFORE[saved_after](saved)
    BEFORE[loaded_after](loaded)
    through(tmp_path, saved, loaded)
    for job in (straight, saved, loaded):
        for layers in (1, 2, 2):
            job.step(layers)
    assert saved.values() == straight.values()
    assert loaded.values() == straight.values()


def test_an_optimizer_with_state_and_one_without_stand_side_by_side(tmp_path: Path) -> None:
    def made() -> tuple[nn.ModuleList, tuple[torch.optim.Optimizer, ...], TrainingState]:
        model = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
        both = (
            torch.optim.SGD(model[0].parameters(), lr=0.25),
            torch.optim.Adam(model[1].parameters(), lr=0.5),
        )
        return model, both, TrainingState(model, both)

    model, both, state = made()
    model[1](model[0](torch.ones(1, 2))).sum().backward()
    for optimizer in both:
        optimizer.step()
    TrainingCheckpoints(tmp_path, state).save(1)
    _, (sgd, adam), fresh = made()
    assert TrainingCheckpoints(tmp_path, fresh).load_latest() == 2
    assert len(sgd.param_groups) == len(adam.param_groups) == 1
    assert [group["lr"] for group in (*sgd.param_groups, *adam.param_groups)] == [0.25, 0.5]
    assert [each["step"].item() for each in adam.state.values()] == [1, 1]


def test_gradients_survive_a_save_and_a_load(tmp_path: Path) -> None:
    job = Job("AdamW")
    job.backward(2)
    before = [parameter.grad for parameter in job.model.parameters()]
    through_files(tmp_path, job, job)
    assert [parameter.grad for parameter in job.model.parameters()] == before


def test_an_optimizer_of_another_kind_is_still_refused(tmp_path: Path) -> None:
    saved = Job("SGD")
    TrainingCheckpoints(tmp_path, saved.state).save(1)
    with pytest.raises(CheckpointError, match=r"does not fit this state: .*betas"):
        TrainingCheckpoints(tmp_path, Job("AdamW").state).load_latest()


def counted(model: nn.Module, counters: Any) -> TrainingState:
    return TrainingState(model, counters=counters)


def test_the_one_before_is_loaded_where_the_newest_does_not_fit(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    small, large = nn.Linear(2, 2), nn.Linear(3, 3)
    TrainingCheckpoints(tmp_path, counted(small, Counters(seen=1))).save(1)
    TrainingCheckpoints(tmp_path, counted(large, Counters(seen=2))).save(2)
    TrainingCheckpoints(tmp_path, TrainingState(small)).save(3)
    counters = Counters()
    with caplog.at_level(logging.WARNING), TrainingCheckpoints(tmp_path, counted(small, counters)) as checkpoints:
        assert checkpoints.load_latest() == 2
        assert counters == {"seen": 1}
        assert "step-000000003: does not fit this state: holds no counters" in caplog.text
        assert "step-000000002: does not fit this state: " in caplog.text
        assert "falling back from step-000000003 to step-000000001" in caplog.text
        checkpoints.save(2)
    kept = sorted(each.name for each in tmp_path.iterdir())
    assert kept == ["abandoned-step-000000002", "abandoned-step-000000003", "step-000000001", "step-000000002"]


class Refusing(Counters):
    """Cannot take a state of 2."""

    def __init__(self, error: Exception) -> None:
        super().__init__(seen=0)
        self.error = error

    def load_state_dict(self, state: Any) -> None:
        if state["seen"] == 2:
            raise self.error
        super().load_state_dict(state)


def test_where_the_state_cannot_be_taken_the_one_before_replaces_all_of_it(tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    for seen in (1, 2):
        with torch.no_grad():
            model.weight.fill_(seen)
        TrainingCheckpoints(tmp_path, counted(model, Counters(seen=seen))).save(seen)
    counters = Refusing(ValueError("no"))
    assert TrainingCheckpoints(tmp_path, counted(model, counters)).load_latest() == 2
    assert counters == {"seen": 1}
    assert model.weight.unique().tolist() == [1.0]


@pytest.mark.parametrize("error", [MemoryError("no room"), OSError(5, "Input/output error")])
def test_what_may_succeed_the_next_time_is_no_reason_to_fall_back(error: Exception, tmp_path: Path) -> None:
    model = nn.Linear(2, 2)
    for seen in (1, 2):
        TrainingCheckpoints(tmp_path, counted(model, Counters(seen=seen))).save(seen)
    with pytest.raises(CheckpointError, match=r"no room|Input/output error"):
        TrainingCheckpoints(tmp_path, counted(model, Refusing(error))).load_latest()
    with TrainingCheckpoints(tmp_path, counted(model, Counters())) as checkpoints:
        assert checkpoints.load_latest() == 3


def test_where_none_fits_the_error_says_why_and_what_to_do(tmp_path: Path) -> None:
    for step in (1, 2):
        TrainingCheckpoints(tmp_path, nn.Linear(2, 2)).save(step)
    said = r"none of the 2 checkpoints can be loaded. The newest: .*step-000000002: does not fit this state: .*change it back"
    with pytest.raises(CheckpointError, match=said):
        TrainingCheckpoints(tmp_path, nn.Linear(3, 3)).load_latest()
