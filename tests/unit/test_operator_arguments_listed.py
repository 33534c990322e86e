"""What the operator says of options and variables: which one, why, and what to do instead."""

import re
from typing import Any

import pytest

from guided_contract.compatibility import SUPPORTED_VLLM
from guided_operator.api import ManifestError, engine_args, engine_env, parse
from guided_operator.api.crd import schema_of
from guided_operator.api.spec import GuidedModelSpec
from guided_operator.policy.arguments import VOCABULARIES
from guided_operator.policy.installation_limits import NO_LIMITS, Limits
from support.manifests import changed, guided_model, minimal

ANY = Limits(arguments="Any")
ASK = "remove it, or have whoever runs the operator set limits.arguments to Any"


def said(limits: Limits = NO_LIMITS, **fields: Any) -> list[str]:
    return [str(problem) for problem in limits.check(guided_model(**fields))]


def schema_says(**fields: Any) -> str:
    with pytest.raises(ManifestError) as caught:
        parse(changed(minimal(), **fields))
    return str(caught.value)


def test_something_is_known_of_every_supported_version() -> None:
    assert set(VOCABULARIES) == set(SUPPORTED_VLLM)


def test_no_name_is_said_in_two_places() -> None:
    for known in VOCABULARIES.values():
        groups = (known.switches, known.values, known.lists, known.configurations, *known.unlisted.values())
        names = [name for group in (*groups, engine_args.REFUSED) for name in group]
        assert len(names) == len(set(names))
        assert known.repositories.keys() | known.with_repositories <= known.listed


def test_the_schema_refuses_nothing_that_is_not_its_own() -> None:
    """Also by being the beginning of what it refuses: then the name is to be added to EXCEPTED."""
    for known in VOCABULARIES.values():
        options = known.listed | known.parts | frozenset().union(*known.unlisted.values())
        denied = {f"no-{name}" for name in known.switches}
        assert [name for name in options | denied if engine_args.refusal(f"--{name}")] == []
        variables = known.variables.union(engine_env.WAY_TO_THE_HUB, *known.unlisted_variables.values())
        assert [name for name in variables if engine_env.refusal(name)] == []


@pytest.mark.parametrize("name", sorted(engine_args.REFUSED))
def test_every_option_that_the_schema_refuses_is_named_with_its_reason(name: str) -> None:
    told = engine_args.REFUSED[name]
    for word in (f"--{name}", f"--{name.replace('-', '_')}=secret", f"--no-{name}", f"--{name}.part=1"):
        spoken = word.split("=", 1)[0]
        assert f"spec.engine.args[1]: {spoken} {told}" in schema_says(engine__args=["--seed=1", word])
        assert "secret" not in schema_says(engine__args=["--seed=1", word])


TOLD = " ".join((*engine_args.OWNED, *engine_env.OWNED, *engine_env.FORBIDDEN))
FIELDS = set(re.findall(r"\bset ([a-z]\w*(?:\.\w+)*)", TOLD)) - {"pods.hubEndpoint"}  # the chart's


@pytest.mark.parametrize("field", sorted(FIELDS))
def test_fields_that_refusals_name_are_there(field: str) -> None:
    schema: Any = schema_of(GuidedModelSpec)
    for part in field.split("."):
        schema = schema["properties"][part]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (
            "--kv-transfer-config={}",
            (
                "--kv-transfer-config is not listed for vLLM 0.32.0: it makes this pod talk to other pods "
                f"and stores, which nothing here was run with; {ASK}"
            ),
        ),
        (
            "--kv_events_config.publisher=zmq",
            "--kv_events_config.publisher is not listed for vLLM 0.32.0: it",
        ),
        ("--no-enable-sleep-mode", "--no-enable-sleep-mode is not listed for vLLM 0.32.0: a pod that sleeps"),
        (
            "--tensor-paralel-size=2",
            (
                "--tensor-paralel-size is no option of vLLM 0.32.0; did you mean --tensor-parallel-size? It "
                "is set by the operator: set parallelism.tensor"
            ),
        ),
        (
            "--enforce-eagre",
            "--enforce-eagre is no option of vLLM 0.32.0; did you mean --enforce-eager?",
        ),
        ("--generation-c=x", "--generation-c is no option of vLLM 0.32.0; did you mean --generation-config?"),
        (
            "--zzz=1",
            (
                "--zzz is no option that is known of vLLM 0.32.0; docs/arguments.md lists those that are. If "
                f"your vLLM has it: {ASK}"
            ),
        ),
    ],
)
def test_an_option_that_is_not_listed(word: str, expected: str) -> None:
    (problem,) = said(engine__args=["--seed=1", word])
    assert problem.startswith(f"spec.engine.args[1]: {expected}")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "VLLM_NIXL_SIDE_CHANNEL_PORT",
            "is not listed for vLLM 0.32.0: it makes this pod talk to other pods",
        ),
        ("NCCL_IB_DISABEL", "is not listed for vLLM 0.32.0; did you mean NCCL_IB_DISABLE?"),
        (
            "ZZZ",
            "is not listed for vLLM 0.32.0; docs/arguments.md has those that are. For your own code, call",
        ),
    ],
)
def test_a_variable_that_is_not_listed(name: str, expected: str) -> None:
    env = [{"name": "TZ", "value": "UTC"}, {"name": name, "value": "1"}]
    (problem,) = said(engine__env=env)
    assert problem.startswith(f"spec.engine.env[1].name: {name} {expected}")
    assert said(ANY, engine__env=env) == []


def test_the_value_of_an_option_that_is_not_listed_is_no_fault_of_its_own() -> None:
    assert len(said(engine__args=["--kv-transfer-config", "{}"])) == 1


@pytest.mark.parametrize(
    "word",
    [
        "--model-loader-extra-config.concurrency=16",
        '--model-loader-extra-config={"distributed": true}',
        "--decode-context-parallel-size=2",
        "--cpu-distributed-timeout-seconds=60",
    ],
)
def test_options_that_the_review_missed(word: str) -> None:
    assert said(engine__args=[word]) == []


@pytest.mark.parametrize(
    "name",
    [
        *("NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_TUNER_CONFIG_PATH", "NCCL_IB_ADAPTIVE_ROUTING"),
        *("NCCL_IB_PCI_RELAXED_ORDERING", "NCCL_MNNVL_ENABLE", "FI_PROVIDER", "AWS_ACCESS_KEY_ID"),
        *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION"),
        *("AWS_ENDPOINT_URL", "AWS_CA_BUNDLE"),
    ],
)
def test_variables_that_the_review_missed(name: str) -> None:
    assert said(engine__env=[{"name": name, "value": "x"}]) == []


def test_the_version_of_the_resource_decides_and_the_latest_where_none_is_known() -> None:
    for image in ("vllm/vllm-openai:v0.32.0", "vllm/vllm-openai:v0.99.0", "example.com/mine:latest"):
        (problem,) = said(engine__image=image, engine__args=["--zzz=1"])
        assert "vLLM 0.32.0" in problem


# Words that vLLM would not understand, or take for something else.
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--seed", "7", "evil/model"], "spec.engine.args[2]: is neither an option nor the value of one"),
        (["--enforce-eager", "evil/model"], "spec.engine.args[1]: is neither an option nor the value of one"),
        (["--seed=7", "8"], "spec.engine.args[1]: is neither an option nor the value of one"),
        (["--seed"], "spec.engine.args[0]: --seed needs a value"),
        (["--seed", "--enforce-eager"], "spec.engine.args[0]: --seed needs a value"),
        (["--cudagraph-capture-sizes", "--seed=1"], "spec.engine.args[0]: --cudagraph-capture-sizes needs a"),
        (["--no-enforce-eager=true"], "spec.engine.args[0]: --no-enforce-eager takes no value"),
        (["--hf-overrides.rope_theta"], "spec.engine.args[0]: --hf-overrides needs a value"),
        (
            ["--compilation-config.cudagraph-mode=NONE"],
            "spec.engine.args[0]: parts are fields, with underscores: write --compilation-config.cuda",
        ),
    ],
    ids=" ".join,
)
def test_words_that_vllm_would_take_for_something_else(words: list[str], expected: str) -> None:
    for limits in (NO_LIMITS, ANY):
        (problem,) = said(limits, engine__args=words)
        assert problem.startswith(expected)


@pytest.mark.parametrize(
    "words",
    [
        ["--seed", "7"],
        ["--seed=-1", "--long_prefill_token_threshold", "-1"],
        ["--cudagraph-capture-sizes", "1", "2", "4", "--no-enable-prefix-caching"],
        ["--hf-overrides.rope_theta", "1e6", "--compilation-config.cudagraph_mode=PIECEWISE"],
        ["--limit-mm-per-prompt", '{"image": 2}'],
    ],
    ids=" ".join,
)
def test_words_that_vllm_understands(words: list[str]) -> None:
    assert said(engine__args=words) == []


@pytest.mark.parametrize(
    "words",
    [
        ['--kv-transfer-config={"kv_connector": "NixlConnector", "kv_role": "kv_both"}'],
        ["--kv-events-config.enable_kv_cache_events=true", "--no-disable-log-stats", "--runner=generate"],
        ["--an-option-of-vllm-9=x", "--seed=1", "--a-switch-of-vllm-9"],
    ],
    ids=" ".join,
)
def test_any_takes_what_is_not_listed(words: list[str]) -> None:
    assert said(ANY, engine__args=words) == []
    assert said(engine__args=words) != []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        # A word behind an option of which nobody here knows whether it takes one would be the model.
        (
            ["--kv-transfer-config", "{}"],
            "args[1]: is neither an option nor the value of one: vLLM would take",
        ),
        (["--a-switch-of-vllm-9", "evil/model"], "args[1]: is neither an option nor the value of one"),
        # vLLM would take the next word for the value, and the one behind that for the model.
        (
            ["--of-vllm-9.a", "--seed", "evil/model"],
            "args[0]: --of-vllm-9.a takes the next word for",
        ),
        # vLLM completes names, and limits.models would look for the whole one.
        (["--generation-c=evil/model"], "args[0]: --generation-c is not a whole name"),
        (["--hf-over.text_model_id=evil/model"], "args[0]: --hf-over.text_model_id is not a whole name"),
        (["--kv-tr={}"], "args[0]: --kv-tr is not a whole name, and vLLM would complete it: write --kv-tr"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_any_is_no_way_round(words: list[str], expected: str) -> None:
    (problem,) = said(ANY, engine__args=words)
    assert problem.startswith(f"spec.engine.{expected}")


@pytest.mark.parametrize(
    "word",
    [
        "--generation-config=evil/repo",
        "--hf-overrides.text_model_id=evil/repo",
        '--model-loader-extra-config={"tensorizer_uri": "s3://evil/x"}',
    ],
)
@pytest.mark.parametrize("arguments", ["Listed", "Any"])
def test_limits_of_models_hold_whatever_arguments_may_be(word: str, arguments: Any) -> None:
    limits = Limits(models=("hf://good-org",), arguments=arguments)
    (problem,) = said(limits, model__uri="hf://good-org/model", engine__args=[word])
    assert "this operator allows only models from hf://good-org" in problem


@pytest.mark.parametrize("arguments", ["Listed", "Any"])
def test_limits_of_proxies_hold_whatever_arguments_may_be(arguments: Any) -> None:
    limits = Limits(models=("hf://good-org",), arguments=arguments)
    env = [{"name": "AWS_ENDPOINT_URL", "value": "http://evil"}]
    (problem,) = said(limits, model__uri="hf://good-org/model", engine__env=env)
    assert "set limits.proxies to Allow" in problem
