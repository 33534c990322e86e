"""What the launcher decides, without processes: threads, stalls, versions."""

import json
from typing import Any

import pytest

from guided_contract.config import PodConfig
from guided_contract.heartbeat import Beat
from guided_engine import versions
from guided_engine.cpus import Cpus
from guided_engine.launcher.command import plan, program
from guided_engine.launcher.stall import StallWatch

SECOND = 10**9


@pytest.mark.parametrize(
    ("cpus", "ranks", "binding"),
    [
        (Cpus((0, 1, 2, 3)), 2, "0,1|2,3"),
        (Cpus((4, 6, 9)), 2, "4|6"),
        (Cpus((0, 1, 2, 3), quota=2.5), 2, "0|1"),
        (Cpus((0, 1, 2, 3), quota=0.5), 2, "0|1"),
        (Cpus((7,)), 2, "7|7"),
        (Cpus((0, 1), quota=8), 1, "0,1"),
    ],
)
def test_binding(cpus: Cpus, ranks: int, binding: str) -> None:
    assert cpus.binding(ranks) == binding


def pod(**fields: Any) -> PodConfig:
    return PodConfig(name="m", model="m", tokenizer="m", served_name="m", run_dir="/nowhere", **fields)


@pytest.mark.parametrize(
    ("args", "engines", "module"),
    [
        (["--port", "1"], 1, "vllm.entrypoints.openai.api_server"),
        (["--api-server-count", "2"], 1, "guided_engine.compat.serve"),
        (["--api_server_count=2"], 1, "guided_engine.compat.serve"),
        (["-asc", "2"], 1, "guided_engine.compat.serve"),
        (["--port", "1"], 2, "guided_engine.compat.serve"),
    ],
)
def test_several_api_servers_have_a_program_of_their_own(args: list[str], engines: int, module: str) -> None:
    assert program(pod(data_parallel=engines), args)[-1] == module


def test_an_unknown_vllm_is_started_by_its_own_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it knows: ours imports what another version may have elsewhere."""
    monkeypatch.setattr(versions, "installed_vllm", lambda: "0.31.0")
    two = pod(data_parallel=2)
    assert program(two, [])[-1] == "vllm.entrypoints.openai.api_server"
    assert plan(two, ("--model", "m"), {}, Cpus((0,)), ("x",)).argv == ("x", two.model, "--model", "m")


@pytest.mark.parametrize(("device", "method"), [("cpu", "ngram"), ("cuda", "ngram_gpu")])
def test_a_cpu_gets_the_speculator_that_runs_there(
    monkeypatch: pytest.MonkeyPatch, device: str, method: str
) -> None:
    monkeypatch.setattr(versions, "installed", {"vllm": f"0.32.0+{device}"}.get)
    options = {"method": "ngram_gpu", "num_speculative_tokens": 3}
    argv = plan(
        pod(), ("--speculative-config", json.dumps(options), "--seed", "1"), {}, Cpus((0,)), ("x",)
    ).argv
    at = argv.index("--speculative-config") + 1
    assert json.loads(argv[at]) == options | {"method": method}
    assert argv[at + 1 : at + 3] == ("--seed", "1")


def test_only_a_quota_below_the_cpus_limits() -> None:
    assert Cpus((0, 1, 2, 3), quota=2).limited
    assert not Cpus((0, 1), quota=2).limited
    assert not Cpus((0, 1)).limited


@pytest.mark.parametrize(
    ("chosen", "binding"),
    [({}, "0|1"), ({"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "3"}, "nobind")],
)
def test_threads_follow_the_cpus_unless_the_user_chose(chosen: dict[str, str], binding: str) -> None:
    env = {"VLLM_TARGET_DEVICE": "cpu", **chosen}
    told = plan(pod(tensor_parallel=2), (), env, Cpus((0, 1, 2, 3), quota=2), ("x",)).env
    assert told["VLLM_CPU_OMP_THREADS_BIND"] == binding
    assert told["OMP_NUM_THREADS"] == chosen.get("OMP_NUM_THREADS", "1")


def core(steps: int, busy: int) -> list[Beat]:
    return [Beat(1, 0, steps, 0, busy), Beat(2, 0, steps, 0, 0)]


class TestStallWatch:
    def test_busy_without_steps(self) -> None:
        watch = StallWatch(10, lambda _pid: True)
        assert watch.verdict(core(5, busy=0), 0) == ""
        assert watch.verdict(core(5, busy=1), 1 * SECOND) == ""
        assert watch.verdict(core(5, busy=1), 10 * SECOND) == ""
        assert "has 1 unfinished requests" in watch.verdict(core(5, busy=1), 11 * SECOND)
        assert watch.verdict(core(6, busy=1), 12 * SECOND) == ""

    def test_long_idle_does_not_count(self) -> None:
        watch = StallWatch(10, lambda _pid: True)
        for second in range(0, 3600, 60):
            assert watch.verdict(core(5, busy=0), second * SECOND) == ""
        assert watch.verdict(core(5, busy=3), 3601 * SECOND) == ""

    def test_nobody_has_written_yet(self) -> None:
        nobody = [Beat(0, 0, 0, 0, 0)] * 2
        assert StallWatch(10, lambda _pid: False).verdict(nobody, 10**6 * SECOND) == ""

    def test_gone(self) -> None:
        watch = StallWatch(10, lambda pid: pid == 1)
        assert watch.verdict(core(5, busy=0), 0) == "rank 0 has gone"
