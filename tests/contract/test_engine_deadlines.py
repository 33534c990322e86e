"""How long vLLM waits while it starts: as `probes.startupTimeout` says, seen in vLLM and in torch."""

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from devtools import tinymodel
from devtools.process import free_ports

from support import vllm_start
from support.vllm_start import tiny_model

# What vLLM and torch warn of when imported is theirs.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(
    ("fields", "ranks_s", "hosts_s"),
    [
        ({"engine__args": ["--distributed-timeout-seconds=60"]}, 60, 1800),
        ({"parallelism__tensor": 4, "parallelism__nodes": 2, "probes__startupTimeout": "2h"}, 7200, 7200),
    ],
)
def test_ranks_wait_for_one_another_as_long_as_the_startup_probe(
    fields: dict[str, Any], ranks_s: int, hosts_s: int
) -> None:
    words = vllm_start.command(tiny_model(**fields)).argv
    parallel = vllm_start.configuration(words).parallel_config
    assert parallel.distributed_timeout_seconds == ranks_s
    assert parallel.cpu_distributed_timeout_seconds == hosts_s


def test_api_servers_wait_for_the_engines_as_long_unless_the_user_says_another_time() -> None:
    model, name = tiny_model(probes__startupTimeout="2h"), "VLLM_ENGINE_READY_TIMEOUT_S"
    asked = f"from vllm.v1.engine import core_client; print(core_client.{name})"
    said = subprocess.run(
        [sys.executable, "-c", asked],
        env={**os.environ, **vllm_start.command(model).env},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert int(said.stdout.split()[-1]) == 7200
    assert vllm_start.command(model, {name: "60"}).env[name] == "60"


@pytest.fixture
def asked_of_torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, timedelta | None]]]:
    """Record which timeouts process groups are made with."""
    import torch.distributed
    from vllm.distributed import cleanup_dist_env_and_memory

    made: list[tuple[str, timedelta | None]] = []
    for name in ("init_process_group", "new_group"):
        real = getattr(torch.distributed, name)

        def spy(*args: Any, real: Any = real, name: str = name, **kwargs: Any) -> Any:
            made.append((f"{name} {kwargs['backend']}", kwargs["timeout"]))
            return real(*args, **kwargs)

        monkeypatch.setattr(torch.distributed, name, spy)
    yield made
    cleanup_dist_env_and_memory()


@pytest.mark.parametrize(("ranks_s", "hosts_s"), [(7200, 3600), (None, None)])
def test_torch_is_told_what_the_configuration_says(
    asked_of_torch: list[tuple[str, timedelta | None]], ranks_s: int | None, hosts_s: int | None
) -> None:
    """Also in the groups that nodes meet in again after they have loaded (`cpu_group`)."""
    from vllm.config import set_current_vllm_config
    from vllm.v1.worker.gpu_worker import init_worker_distributed_environment

    model = vllm_start.configuration(("--model", str(tinymodel.models() / "tiny")))
    model.parallel_config.distributed_timeout_seconds = ranks_s
    model.parallel_config.cpu_distributed_timeout_seconds = hosts_s
    [port] = free_ports(1)
    with set_current_vllm_config(model):
        init_worker_distributed_environment(model, 0, f"tcp://127.0.0.1:{port}", 0, "gloo")
    ranks, hosts = (each and timedelta(seconds=each) for each in (ranks_s, hosts_s))
    (first, timeout), *groups = asked_of_torch
    assert (first, timeout) == ("init_process_group gloo", ranks)
    assert {each for _, each in groups[::2]} == {ranks}
    assert {each for _, each in groups[1::2]} == {hosts}
