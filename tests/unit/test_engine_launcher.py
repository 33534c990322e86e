"""What the launcher decides, without processes: threads, stalls, versions."""

import json
from typing import Any

import pytest

from guided_contract.config import PodConfig
from guided_contract.heartbeat import Beat
from guided_engine import versions
from guided_engine.cpus import Cpus
from guided_engine.launcher.command import plan
from guided_engine.launcher.stall import StallWatch

SECOND = 10**9


def pod(**fields: Any) -> PodConfig:
    return PodConfig(name="m", model="m", tokenizer="m", served_name="m", run_dir="/nowhere", **fields)


@pytest.mark.parametrize(("device", "method"), [("cpu", "ngram"), ("cuda", "ngram_gpu")])
def test_a_cpu_gets_the_speculator_that_runs_there(
    monkeypatch: pytest.MonkeyPatch, device: str, method: str
) -> None:
    monkeypatch.setattr(versions, "installed", {"vllm": f"0.32.0+{device}"}.get)
    options = {"method": "ngram_gpu", "num_speculative_tokens": 3}
    argv = plan(pod(), ("--speculative-config", json.dumps(options), "--seed", "1"), {}, Cpus(1)).argv
    at = argv.index("--speculative-config") + 1
    assert json.loads(argv[at]) == options | {"method": method}
    assert argv[at + 1 : at + 3] == ("--seed", "1")


@pytest.mark.parametrize(("cpus", "threads"), [(Cpus(4, 2), "1"), (Cpus(4, 0.5), "1"), (Cpus(8, 6.5), "3")])
def test_threads_follow_the_quota_unless_the_user_chose(cpus: Cpus, threads: str) -> None:
    two = pod(tensor_parallel=2)
    assert plan(two, (), {}, cpus).env["OMP_NUM_THREADS"] == threads
    assert plan(two, (), {"OMP_NUM_THREADS": "7"}, cpus).env["OMP_NUM_THREADS"] == "7"
    assert "OMP_NUM_THREADS" not in plan(two, (), {}, Cpus(4)).env


def core(steps: int, busy: int) -> list[Beat]:
    return [Beat(1, 0, steps, 0, busy), Beat(2, 0, steps, 0, 0)]


STALLED = "has 1 unfinished requests"


@pytest.mark.parametrize(
    "seen",
    [
        # Seconds, steps, requests, what is said.
        [(0, 5, 0, ""), (1, 5, 1, ""), (10, 5, 1, ""), (11, 5, 1, STALLED), (12, 6, 1, "")],
        [*((second, 5, 0, "") for second in range(0, 3600, 60)), (3601, 5, 1, "")],  # long idle
    ],
)
def test_a_core_that_has_requests_and_makes_no_step_is_stalled(seen: list[tuple[int, int, int, str]]) -> None:
    watch = StallWatch(10, lambda _pid: True)
    for second, steps, busy, said in seen:
        verdict = watch.verdict(core(steps, busy), second * SECOND)
        assert (said in verdict, bool(verdict)) == (True, bool(said))


def test_a_rank_that_has_ended_is_told() -> None:
    assert StallWatch(10, lambda pid: pid == 1).verdict(core(5, busy=0), 0) == "rank 0 has ended"
