"""What spec.drain and spec.probes.guided become in a pod."""

from typing import Any

import pytest

from guided_contract import config
from guided_operator.builders import manifest, render
from guided_operator.builders.configuration import pod_config as made_for
from guided_operator.builders.drain import END_S
from guided_operator.builders.site import cluster_site
from guided_operator.cli.local_site import local_site
from support.manifests import guided_model

SITE = cluster_site("registry/guidedmodel:1")


def pod(**spec: Any) -> dict[str, Any]:
    found: dict[str, Any] = manifest(render(guided_model(**spec), SITE).template)["spec"]
    return found


@pytest.mark.parametrize(
    ("spec", "grace_s"),
    [
        ({}, 5 + 300 + END_S),
        ({"drain": {"timeout": "1500ms"}}, 7 + END_S),
        ({"drain": {"timeout": "0s"}}, 45),
    ],
)
def test_the_grace_period_has_room_for_the_drain_and_the_end(spec: dict[str, Any], grace_s: int) -> None:
    assert pod(**spec)["terminationGracePeriodSeconds"] == grace_s


def test_an_engine_that_fails_its_probes_gets_no_time_to_drain() -> None:
    [engine] = pod()["containers"]
    for probe in ("startupProbe", "livenessProbe"):
        assert engine[probe]["terminationGracePeriodSeconds"] == END_S


def test_the_launcher_is_told_how_long_to_wait() -> None:
    found = made_for(guided_model(drain={"timeout": "90s"}), SITE)
    assert found.drain == config.DrainConfig(timeout_s=90, endpoint_lag_s=5)


def test_on_a_laptop_nothing_is_waited_for(tmp_path: Any) -> None:
    site = local_site(tmp_path, volumes={}, port=None, otlp_endpoint=None)
    assert made_for(guided_model(), site).drain is None


def test_a_pod_is_unready_within_thirty_seconds_of_its_engines_stall() -> None:
    from guided_sidecar.health.engine import FRESH_NS

    readiness = pod()["initContainers"][-1]["readinessProbe"]
    asked_s = readiness["failureThreshold"] * max(readiness["periodSeconds"], readiness["timeoutSeconds"])
    judged_s = 1
    assert FRESH_NS / 1e9 + judged_s + asked_s < 30


def test_the_sidecar_is_told_how_to_probe() -> None:
    guided = {"mode": "Periodic", "period": "30s", "onFailure": "Unready"}
    found = made_for(guided_model(probes={"guided": guided}), SITE).probes.guided
    assert found == config.GuidedProbeConfig(mode="Periodic", period_s=30, on_failure="Unready")
    assert made_for(guided_model(), SITE).probes.guided == config.GuidedProbeConfig()
