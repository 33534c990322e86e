"""What spec.drain becomes in a pod."""

import signal
import subprocess
import sys
from typing import Any

import pytest

from guided_contract import config
from guided_operator.builders.configuration import pod_config as made_for
from guided_operator.builders.drain import END_S
from guided_operator.cli.local.site import local_site
from support.manifests import SITE, guided_model, pod_of


def test_the_grace_period_has_room_for_the_drain_and_the_end() -> None:
    for drain, grace_s in (({}, 5 + 300 + END_S), ({"timeout": "1500ms"}, 7 + END_S)):
        assert pod_of(guided_model(drain=drain))["terminationGracePeriodSeconds"] == grace_s


# Deaf, as a container's first process is to what it has no handler for, until it has been told to hear.
DEAF = """
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
sys.stdin.read()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
signal.pause()
"""


def test_a_container_is_sent_term_once_it_hears_it() -> None:
    for container in (*pod_of(guided_model())["containers"], pod_of(guided_model())["initContainers"][-1]):
        [*command] = container["lifecycle"]["preStop"]["exec"]["command"]
        deaf = subprocess.Popen([sys.executable, "-c", DEAF], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert deaf.stdin is not None
        assert deaf.stdout is not None
        deaf.stdout.readline()
        with deaf, subprocess.Popen([*command, "sh", str(deaf.pid)]) as hook:
            with pytest.raises(subprocess.TimeoutExpired):
                hook.wait(0.3)
            deaf.stdin.close()
            assert hook.wait(10) == 0
            deaf.send_signal(signal.SIGTERM)
            assert deaf.wait(10) == 7


def test_term_is_held_back_for_a_while_only() -> None:
    command = pod_of(guided_model())["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    with subprocess.Popen(["/bin/sleep", "60"]) as deaf:
        looks = [*command, "sh", str(deaf.pid), "3"]
        assert subprocess.run(looks, timeout=5, check=False).returncode == 0
        deaf.kill()
    assert subprocess.run([*command, "sh", "no process"], timeout=5, check=False).returncode == 0


def test_an_engine_that_fails_its_probes_gets_no_time_to_drain() -> None:
    [engine] = pod_of(guided_model())["containers"]
    for probe in ("startupProbe", "livenessProbe"):
        assert engine[probe]["terminationGracePeriodSeconds"] == END_S


def test_the_launcher_is_told_how_long_to_wait_and_on_a_laptop_it_does_not(tmp_path: Any) -> None:
    found = made_for(guided_model(drain={"timeout": "90s"}), SITE)
    assert found.drain == config.DrainConfig(timeout_s=90, endpoint_lag_s=5)
    site = local_site(tmp_path, volumes={}, port=None, otlp_endpoint=None)
    assert made_for(guided_model(), site).drain is None


def test_a_pod_is_unready_within_thirty_seconds_of_its_engines_stall() -> None:
    from guided_sidecar.health.engine_state import FRESH_NS

    readiness = pod_of(guided_model())["initContainers"][-1]["readinessProbe"]
    asked_s = readiness["failureThreshold"] * max(readiness["periodSeconds"], readiness["timeoutSeconds"])
    judged_s = 1
    assert FRESH_NS / 1e9 + judged_s + asked_s < 30
