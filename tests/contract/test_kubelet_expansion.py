"""What the user wrote reaches vLLM as it stands, whatever the kubelet would expand in it."""

import json
import subprocess
from typing import Any

import pytest
from devtools import golang
from hypothesis import given, settings
from hypothesis import strategies as st

from guided_contract import names
from guided_operator.builders.pod import pod_template
from guided_operator.builders.pod_paths import Site
from guided_operator.cli.local.pod import containers
from support.manifests import guided_model

SITE = Site("guidedmodel:1")
# Names of variables that there are and are not, and what else the kubelet reads in a word.
WORDS = st.lists(
    st.sampled_from(["$", "$$", "$(", ")", "(", "APP_A", "APP_B", "$(APP_A)", "$(HOME)", "x", "é", "\\"]),
    max_size=8,
).map("".join)


@pytest.fixture(scope="module", autouse=True)
def _expansion() -> None:
    try:
        golang.expansion()
    except golang.MissingToolError as error:
        pytest.skip(str(error))


def started(template: Any) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Return words and environment of each container, by name, as the kubelet starts it."""
    spec = template["spec"]
    found = [*spec["initContainers"], *spec["containers"]]
    done = subprocess.run(
        [golang.expansion() / "expansion"],
        input=json.dumps(found),
        capture_output=True,
        text=True,
        check=True,
    )
    answers = zip(found, json.loads(done.stdout), strict=True)
    return {each["name"]: (answer["words"], answer["env"]) for each, answer in answers}


@settings(max_examples=50)
@given(st.lists(WORDS.filter(bool), max_size=3), st.lists(WORDS, min_size=3, max_size=3), WORDS)
def test_every_word_arrives_as_it_was_written(args: list[str], values: list[str], path: str) -> None:
    env = dict(zip(("APP_A", "APP_B", "HF_HUB_VERBOSITY"), values, strict=True))
    gm = guided_model(
        engine__args=["--ignore-patterns", "x", *args],
        engine__env=[{"name": name, "value": value} for name, value in env.items()],
    )
    # As some day's pattern might let it through: escaping asks no field.
    model = gm.spec.model.model_copy(update={"uri": f"file:///{path}"})
    gm = gm.model_copy(update={"spec": gm.spec.model_copy(update={"model": model})})
    template = pod_template(gm, SITE)
    words, environment = started(template)[names.ENGINE_CONTAINER]
    assert words[-len(args) - 2 :] == ["--ignore-patterns", "x", *args]
    assert words[words.index("--model") + 1] == f"/{path}".rstrip("/")
    assert {name: environment[name] for name in env} == env
    assert started(template)[names.SIDECAR_CONTAINER][1]["HF_HUB_VERBOSITY"] == env["HF_HUB_VERBOSITY"]

    local = {each.name: each for each in containers(template)}[names.ENGINE_CONTAINER]
    assert list(local.command) == words
    assert local.environment == environment
