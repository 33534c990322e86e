"""How long vLLM waits while it starts: as `probes.startupTimeout` says, seen in vLLM."""

import os
import subprocess
import sys
from typing import Any

import pytest

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
