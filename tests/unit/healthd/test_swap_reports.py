"""Who may say how a job's ranks were replaced, and how much."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.swap_reports.swap_endpoint import Caller, SwapEndpoint, judge_launcher
from healthd.swap_reports.swap_register import JOBS_MAX, JOBS_PER_USER_MAX, KEPT_S, POSTS_BURST, SwapRegister
from healthd.trainer.beacons.job_owners import JobClaimants
from vocabulary.clock import ManualClock
from vocabulary.health import Health
from vocabulary.messages.swap_messages import SWAPS_PER_JOB_MAX, JobSwap, JobSwaps
from vocabulary.messages.wire import Report, decode_report, encode_message

ALICE, BOB = 1001, 1002
NOW = 100.0


def swap(job: str, at: float = 1.0) -> JobSwap:
    return JobSwap(job=job, attempt=1, at=at, outcome="swapped")


def owned_by(*users: int, strangers: tuple[int, ...] = ()) -> dict[str, JobClaimants]:
    return {"7": JobClaimants(users, strangers), "llama": JobClaimants(users, strangers)}


@pytest.fixture
def proc(tmp_path: Path) -> str:
    """Process 40 of this user is in Slurm job 7, 41 in Slurm job 8, 42 in none."""
    for pid, group in ((40, "system.slice/slurmstepd.scope/job_7/step_0"), (41, "slurm/uid_5/job_8/step_0"), (42, "")):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(f"0::/{group}\n")
    return str(tmp_path)


@pytest.mark.parametrize(
    ("job", "pid", "claimants", "refusal"),
    [
        ("7", 40, {}, ""),  # the scheduler says so, though none of its ranks is left on this node
        ("7", 40, owned_by(BOB), ""),
        ("7", 41, owned_by(), "in job 8, not in 7"),
        ("7", 41, owned_by(-1), "in job 8, not in 7"),  # -1: this user; see below
        ("llama", 41, owned_by(-1), ""),  # a local job within an allocation
        ("llama", 42, owned_by(-1), ""),
        ("7", 42, owned_by(-1), ""),  # without Slurm a job may be called 7, too
        ("llama", 42, {}, "no rank of job llama"),
        ("llama", 42, owned_by(BOB), "not known to be user"),
        ("llama", 42, owned_by(-1, BOB), "not known to be user"),
        ("llama", 42, owned_by(-1, strangers=(BOB,)), ""),
        ("llama", 42, owned_by(BOB, strangers=(-1,)), "not known to be user"),
        ("llama", 99, owned_by(-1), ""),  # the caller has ended
        ("7", 99, {}, "no rank of job 7"),
    ],
)
def test_only_the_owner_speaks_for_a_job(
    proc: str, job: str, pid: int, claimants: dict[str, JobClaimants], refusal: str
) -> None:
    mine = Path(proc).stat().st_uid
    known = {
        name: JobClaimants(*(tuple(mine if user == -1 else user for user in users) for users in each))
        for name, each in claimants.items()
    }
    said = judge_launcher(job, Caller(mine, pid), known, proc=proc)
    assert refusal in said
    assert bool(said) is bool(refusal)


def test_a_number_that_another_users_process_has_by_now_counts_for_nothing(proc: str) -> None:
    assert "no rank" in judge_launcher("7", Caller(Path(proc).stat().st_uid + 1, 40), {}, proc=proc)


class Door:
    """The endpoint of a node on which Alice's and Bob's jobs run."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.claimants = {"llama": JobClaimants((ALICE,)), "bert": JobClaimants((BOB,))}
        self.endpoint = SwapEndpoint(lambda: self.claimants, self.clock, proc="/nonexistent")

    def post(self, uid: int, body: bytes | JobSwaps) -> int:
        return self.endpoint.answer(body if isinstance(body, bytes) else encode_message(body), Caller(uid, 1))[0]

    def jobs(self) -> set[str]:
        return {swap.job for swap in self.endpoint.current()}


def test_what_the_owner_says_is_reported_until_the_launcher_is_silent() -> None:
    door = Door()
    assert door.post(ALICE, JobSwaps("llama", (swap("llama"),))) == 200
    assert door.post(BOB, JobSwaps("llama", (swap("llama", at=9.0),))) == 403
    assert door.endpoint.current() == (swap("llama"),)
    assert door.post(ALICE, JobSwaps("llama", (swap("llama"), swap("llama", at=2.0)))) == 200
    assert [each.at for each in door.endpoint.current()] == [1.0, 2.0]
    door.clock.advance(KEPT_S)
    assert door.jobs() == {"llama"}
    door.clock.advance(1)
    assert door.jobs() == set()


def test_the_owner_is_still_known_when_the_jobs_ranks_here_are_lost() -> None:
    door = Door()
    assert door.post(ALICE, JobSwaps("llama", ())) == 200
    del door.claimants["llama"]
    assert door.post(BOB, JobSwaps("llama", ())) == 403
    assert door.post(ALICE, JobSwaps("llama", (swap("llama"),))) == 200
    door.claimants["llama"] = JobClaimants((BOB,))
    assert door.post(ALICE, JobSwaps("llama", ())) == 403
    assert door.post(BOB, JobSwaps("llama", ())) == 200
    del door.claimants["llama"]
    door.clock.advance(KEPT_S + 1)
    assert door.post(BOB, JobSwaps("llama", ())) == 403


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[" * 20_000,
        b'{"job":"llama"}',
        b'{"job":"","swaps":[]}',
        b'{"job":"llama","swaps":[{"job":"llama","attempt":1,"at":-1,"outcome":"x"}]}',
        b'{"job":"llama","swaps":[{"job":"llama","attempt":1,"at":1,"outcome":"' + b"x" * 65 + b'"}]}',
        b'{"job":"llama","swaps":[{"job":"bert","attempt":1,"at":1,"outcome":"swapped"}]}',
        b'{"job":"llama","swaps":[{"job":"llama","attempt":1,"at":1,"outcome":"a\\u0000b"}]}',
        encode_message(JobSwaps("llama", (swap("llama"),) * (SWAPS_PER_JOB_MAX + 1))),
    ],
)
def test_what_does_not_fit_is_refused(body: bytes) -> None:
    door = Door()
    assert door.post(ALICE, body) == 400
    assert door.jobs() == set()


def test_a_users_flood_is_refused_and_delays_nobody_else() -> None:
    door = Door()
    sent = [door.post(ALICE, JobSwaps("llama", (swap("llama"),))) for _ in range(20)]
    assert sent == [200] * int(POSTS_BURST) + [429] * (20 - int(POSTS_BURST))
    assert door.post(BOB, JobSwaps("bert", (swap("bert"),))) == 200
    door.clock.advance(1.0)
    assert door.post(ALICE, JobSwaps("llama", ())) == 200


def test_a_user_keeps_so_many_jobs_and_pushes_out_only_their_own() -> None:
    register = SwapRegister()
    register.put(BOB, "bobs", (swap("bobs"),), NOW)
    for n in range(20):
        register.put(ALICE, f"a{n}", (swap(f"a{n}"),), NOW + n)
    kept = {each.job for each in register.current(NOW + 20)}
    assert kept == {"bobs", *(f"a{n}" for n in range(20 - JOBS_PER_USER_MAX, 20))}


def test_at_the_limit_the_user_with_the_most_jobs_loses_one() -> None:
    register = SwapRegister()
    for user in range(JOBS_MAX // 2):
        for n in range(2):
            register.put(user, f"{user}-{n}", (swap(f"{user}-{n}"),), NOW)
    register.put(999, "late", (swap("late"),), NOW)
    kept = {each.job for each in register.current(NOW)}
    assert len(kept) == JOBS_MAX
    assert "late" in kept
    assert "0-0" not in kept


PLAIN = encode_message(JobSwaps("llama", (swap("llama"),)))


@given(st.binary(max_size=400) | st.text().map(lambda text: PLAIN.replace(b"swapped", text.encode(errors="replace"))))
def test_whatever_is_sent_the_controller_takes_the_report(body: bytes) -> None:
    door = Door()
    door.post(ALICE, body)
    report = Report(
        version=1, node="n1", boot_id="b", agent="a", seq=1, sent_at=1.0, ttl_s=30.0, health=Health.HEALTHY,
        swaps=door.endpoint.current(),
    )  # fmt: skip
    assert decode_report(encode_message(report)) == report


def test_the_largest_reports_fit() -> None:
    whole = tuple(swap(f"{n}") for n in range(JOBS_MAX * SWAPS_PER_JOB_MAX))
    report = Report(
        version=1, node="n1", boot_id="b", agent="a", seq=1, sent_at=1.0, ttl_s=30.0, health=Health.HEALTHY, swaps=whole
    )
    assert decode_report(encode_message(report)).swaps == whole
