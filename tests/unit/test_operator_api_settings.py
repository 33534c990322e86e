"""The operator's settings from its environment."""

import pytest

from guided_operator.settings import OperatorSettings, SettingsError, variable_of


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for field in OperatorSettings.model_fields:
        monkeypatch.delenv(variable_of(field), raising=False)
    monkeypatch.setenv("POD_NAMESPACE", "system")
    monkeypatch.setenv("GUIDEDMODEL_PLUGIN_IMAGE", "guidedmodel:1")
    return monkeypatch


def test_environment_is_read_and_the_rest_defaulted(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("GUIDEDMODEL_WORKERS", "7")
    environment.setenv("GUIDEDMODEL_LOG_LEVEL", "")  # as if it were absent
    settings = OperatorSettings()
    assert (settings.namespace, settings.plugin_image, settings.workers) == ("system", "guidedmodel:1", 7)
    assert (settings.health_port, settings.log_level) == (8080, "INFO")
    assert settings.pod_name


def test_each_fault_is_named_by_its_variable(environment: pytest.MonkeyPatch) -> None:
    environment.delenv("POD_NAMESPACE")
    environment.setenv("GUIDEDMODEL_WORKERS", "0")
    with pytest.raises(SettingsError) as caught:
        OperatorSettings()
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == [
        "POD_NAMESPACE",
        "GUIDEDMODEL_WORKERS",
    ]


def test_namespaces_are_a_list_with_commas_and_all_by_default(environment: pytest.MonkeyPatch) -> None:
    assert OperatorSettings().namespaces == ()
    environment.setenv("GUIDEDMODEL_NAMESPACES", "team-a, team-b,team-a,")
    assert OperatorSettings().namespaces == ("team-a", "team-b")
    environment.setenv("GUIDEDMODEL_NAMESPACES", "team-*")
    with pytest.raises(SettingsError, match="GUIDEDMODEL_NAMESPACES"):
        OperatorSettings()
