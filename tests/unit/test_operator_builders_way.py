"""How engine and sidecar reach the hub: by the same proxies, trusting the same authorities."""

import pytest
import requests

from guided_operator.api import GuidedModel
from guided_operator.api.words import WAY_TO_THE_HUB
from support.manifests import containers_of as containers
from support.manifests import environment, guided_model

CA = {"name": "ca", "configMap": {"name": "corp-ca"}}
OTHERS = [
    {"name": "templates", "configMap": {"name": "t"}},
    {"name": "ca-of-another", "secret": {"secretName": "s"}},
]
BOTH = ("engine", "sidecar")


def with_env(**variables: str) -> GuidedModel:
    env = [{"name": name, "value": value} for name, value in variables.items()]
    return guided_model(engine__env=env, pod={"volumes": [CA, *OTHERS]})


@pytest.mark.parametrize("name", WAY_TO_THE_HUB)
def test_both_get_each_variable_of_the_way(name: str) -> None:
    found = containers(with_env(**{name: "x", "LC_ALL": "C"}))
    for each in BOTH:
        assert environment(found[each])[name].split(",")[0] == "x"
    assert "LC_ALL" not in environment(found["sidecar"])
    assert name not in environment(found["plugin"]), "it copies files, and connects to nothing"


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_DIR"])
def test_both_see_the_authorities_that_a_variable_names(name: str) -> None:
    found = containers(with_env(**{name: "/mnt/ca/corp.pem"}))
    mounts = [(each["name"], each["mountPath"]) for one in BOTH for each in found[one]["volumeMounts"]]
    assert mounts.count(("own-ca", "/mnt/ca")) == len(BOTH)
    own = [each["name"] for each in found["sidecar"]["volumeMounts"] if each["name"].startswith("own-")]
    assert own == ["own-ca"], "nothing else of the engine's"


def test_the_sidecar_writes_to_no_volume_of_the_engines() -> None:
    volume = {"name": "ca", "persistentVolumeClaim": {"claimName": "ca", "readOnly": False}}
    env = [{"name": "SSL_CERT_FILE", "value": "/mnt/ca/corp.pem"}]
    gm = guided_model(engine__env=env, pod={"volumes": [volume]})
    [mount] = [each for each in containers(gm)["sidecar"]["volumeMounts"] if each["name"] == "own-ca"]
    assert mount["readOnly"] is True


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"HTTPS_PROXY": "http://p:1"}, {"NO_PROXY": "localhost,127.0.0.1"}),
        ({"HTTP_PROXY": "http://p:1", "no_proxy": ".corp"}, {"no_proxy": ".corp,localhost,127.0.0.1"}),
        (
            {"HTTP_PROXY": "http://p:1", "NO_PROXY": "a", "no_proxy": "b"},
            {"NO_PROXY": "a,localhost,127.0.0.1", "no_proxy": "b,localhost,127.0.0.1"},
        ),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "*"}, {"NO_PROXY": "*"}),
        ({"NO_PROXY": ".corp"}, {"NO_PROXY": ".corp"}),
    ],
)
def test_no_proxy_stands_between_engine_and_sidecar(
    variables: dict[str, str], expected: dict[str, str]
) -> None:
    """The guided probe, and the SDK's exporters, use libraries that heed these."""
    found = containers(with_env(**variables))
    for each in BOTH:
        said = {name: value for name, value in environment(found[each]).items() if name.lower() == "no_proxy"}
        assert said == expected


@pytest.mark.parametrize("except_for", [{}, {"NO_PROXY": ".corp"}, {"no_proxy": "10.0.0.0/8"}])
def test_the_library_of_vllms_exporter_reads_it_so(
    monkeypatch: pytest.MonkeyPatch, except_for: dict[str, str]
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    proxies = {"HTTP_PROXY": "http://p:1", "HTTPS_PROXY": "http://p:1"}
    for name, value in environment(containers(with_env(**proxies, **except_for))["engine"]).items():
        if name.lower().endswith("_proxy"):
            monkeypatch.setenv(name, value)
    assert requests.utils.get_environ_proxies("http://127.0.0.1:8000/v1/completions") == {}
    assert requests.utils.get_environ_proxies("https://huggingface.co")["https"] == "http://p:1"


def test_a_secret_no_proxy_stays_a_reference() -> None:
    secret = {"secretKeyRef": {"name": "s", "key": "k"}}
    env = [{"name": "HTTP_PROXY", "value": "http://p:1"}, {"name": "NO_PROXY", "valueFrom": secret}]
    for each in BOTH:
        assert {"name": "NO_PROXY", "valueFrom": secret} in containers(guided_model(engine__env=env))[each][
            "env"
        ]
