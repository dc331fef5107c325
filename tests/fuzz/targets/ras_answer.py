"""NCCL's RAS status: any user may listen at its port."""

from __future__ import annotations

from healthd.collectors.nccl_ras import describe_job
from healthd.nccl.hang_suspects import count_launches
from healthd.nccl.ras_answer import RasAnswerError, parse_ras_answer
from tests.fuzz.target import Target
from tests.nodes.nccl_ras.documents import Gone, answer, communicator, write_answer


def judge(data: bytes) -> None:
    """It is an answer that can be judged, or an error of the answer."""
    try:
        read = parse_ras_answer(data)
    except RasAnswerError:
        return
    job = describe_job(read, count_launches(read))
    if job.moved or len(job.suspects) > job.suspects_total:
        raise AssertionError(f"no job: {job}")


_DOCUMENT = answer([communicator("0xab", {0: (1, 0, 7, 0, 9), 1: (1, 0, 7, 0, 8), 9: Gone()})])
TARGET = Target(judge, (write_answer(_DOCUMENT), write_answer(_DOCUMENT, without_comma=True), b"[" * 2000))
