"""What the operator knows of vLLM's command line, against vLLM's own parser."""

import functools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guided_operator.api import ManifestError, engine_env, load, parse
from guided_operator.api.engine_args import CONFIGURATIONS, LISTS, SWITCHES, VALUES
from guided_operator.builders import cluster_site, render
from guided_operator.policy.spec_checks import check
from support.left_out import LEFT_OUT, LEFT_OUT_VARIABLES
from support.manifests import changed, guided_model, minimal

# What vLLM and torch warn of when imported is theirs.
pytestmark = pytest.mark.filterwarnings("ignore")

SAMPLES = sorted(Path(__file__).parents[2].joinpath("manifests", "samples").glob("*.yaml"))
SITE = cluster_site("guidedmodel:1")


@pytest.fixture(scope="module")
def parser() -> Any:
    return _parser()


@functools.cache
def _parser() -> Any:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    return make_arg_parser(FlexibleArgumentParser())


def parsed(parser: Any, gm: Any) -> Any:
    return parser.parse_args(render(gm, SITE).template.spec.containers[0].args)


def actions(parser: Any) -> dict[str, Any]:
    """Return vLLM's options by their long names, without the forms that deny them."""
    return {
        form: action
        for action in parser._actions
        for form in action.option_strings
        if form.startswith("--") and not form.startswith("--no-")
    }


def test_every_option_of_vllm_is_listed_or_left_out_for_a_reason(parser: Any) -> None:
    known = {f"--{name}" for name in (*SWITCHES, *VALUES, *LISTS, *CONFIGURATIONS)}
    left_out = {f"--{name}" for names in LEFT_OUT.values() for name in names.split()}
    assert known & left_out == set()
    assert set(actions(parser)) == known | left_out


def test_listed_options_take_as_many_values_as_vllm_takes(parser: Any) -> None:
    found = actions(parser)
    for name in SWITCHES:
        assert f"--no-{name}" in found[f"--{name}"].option_strings, name
    assert {found[f"--{name}"].nargs for name in SWITCHES} == {0}
    assert {found[f"--{name}"].nargs for name in (*VALUES, *CONFIGURATIONS)} == {None}
    assert {found[f"--{name}"].nargs for name in LISTS} == {"+"}


WORDS = st.sampled_from(
    [f"--{name}" for name in (*SWITCHES, *VALUES, *LISTS, *CONFIGURATIONS)]
    + [f"--{name}" for names in LEFT_OUT.values() for name in names.split()]
)
NASTY = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(
    [
        "\n",
        "\n--model=x",
        "=x",
        ".x=y",
        "--",
        "-",
        "_",
        " ",
        "\t--config=/x",
        "\x00",
        "\u2028",
        "=--model",
        "-tp=2",
    ]
)
# What is meant well, too: else nothing of what is drawn would get as far as vLLM's parser.
GOOD = (
    st.sampled_from(
        [f"--{name}" for name in SWITCHES] + [f"--no_{name.replace('-', '_')}" for name in SWITCHES]
    )
    | st.sampled_from(
        ["--seed=1", "--max-num-seqs=2", "--block-size", "7", "-1", "--hf-overrides.a=1", "--dtype=auto"]
    )
    | st.sampled_from([f"--{name}" for name in LISTS])
)
BAD = st.builds("{}{}".format, WORDS | st.just(""), NASTY) | WORDS.map(lambda word: word[:-1])
DRAWN_WORDS = st.lists(GOOD | GOOD | GOOD | BAD, min_size=1, max_size=4)


@settings(deadline=None, max_examples=400)
@given(DRAWN_WORDS)
def test_nothing_owned_is_overridden_by_words_that_are_taken(words: list[str]) -> None:
    """Whatever passes, vLLM's own parser reads the operator's options as the operator wrote them."""
    manifest = changed(minimal(), engine__args=words, parallelism__tensor=2)
    try:
        gm = parse(manifest)
    except ManifestError:
        return
    if check(gm):
        return
    try:
        seen = vars(parsed(_parser(), gm))
    except SystemExit:  # a value that vLLM does not understand: it does not start
        return
    plain = vars(parsed(_parser(), guided_model(parallelism__tensor=2)))
    changed_by_words = {name for name in plain if seen[name] != plain[name]}
    allowed = {name.replace("-", "_") for name in (*SWITCHES, *VALUES, *LISTS, *CONFIGURATIONS)}
    assert changed_by_words <= allowed


@pytest.mark.parametrize("words", [["--seed", "7", "evil/model"], ["--enforce-eager", "evil/model"]])
def test_a_stray_word_is_the_model(parser: Any, words: list[str]) -> None:
    # Why validation counts values: this would serve another model than the resource names.
    assert parser.parse_args(words).model_tag == "evil/model"


def test_every_variable_of_vllm_is_listed_or_left_out_for_a_reason() -> None:
    from vllm import envs

    own = {name for name in envs.environment_variables if name.startswith("VLLM_")}
    left_out = {f"VLLM_{name}" for names in LEFT_OUT_VARIABLES.values() for name in names.split()}
    assert set(engine_env.VLLM) & left_out == set()
    assert own == set(engine_env.VLLM) | left_out


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_samples_command_line_is_understood(parser: Any, sample: Path) -> None:
    gm = load(sample.read_text())
    arguments = parsed(parser, gm)
    assert arguments.served_model_name == [gm.served_name]
    assert arguments.tensor_parallel_size == gm.spec.parallelism.tensor
    assert arguments.max_model_len == gm.spec.engine.max_model_len
    assert arguments.otlp_traces_endpoint == "http://127.0.0.1:8003/v1/traces"


@pytest.mark.parametrize(("asked", "told"), [("Auto", None), ("On", True), ("Off", False)])
def test_speculation_is_understood(parser: Any, asked: str, told: bool | None) -> None:  # noqa: FBT001 - a table
    draft = {"uri": "pvc://models/draft"}
    speculative: dict[str, Any] = {
        "method": "DraftModel",
        "numTokens": 3,
        "draftModel": draft,
        "asyncScheduling": asked,
    }
    arguments = parsed(parser, guided_model(speculative=speculative, parallelism__tensor=2))
    assert arguments.async_scheduling is told
    assert arguments.speculative_config == {
        "method": "draft_model",
        "num_speculative_tokens": 3,
        "model": "/models/models/draft",
        "draft_tensor_parallel_size": 2,
    }


@pytest.mark.parametrize("backend", ["Auto", "XGrammar", "Guidance"])
@pytest.mark.parametrize("whitespace", ["Compact", "Flexible", "Unbounded"])
def test_vllms_own_path_is_configured_as_vllm_allows(parser: Any, backend: str, whitespace: str) -> None:
    guided = {"placement": "Scheduler", "backend": backend, "whitespace": whitespace}
    from vllm.config.structured_outputs import StructuredOutputsConfig

    if (backend, whitespace) == ("Auto", "Compact"):
        with pytest.raises(ManifestError, match="set backend to XGrammar or Guidance"):
            guided_model(guidedDecoding=guided)
        with pytest.raises(ValueError, match="only supported for"):
            StructuredOutputsConfig(backend="auto", disable_any_whitespace=True)
        return
    chosen = parsed(parser, guided_model(guidedDecoding=guided)).structured_outputs_config
    options = chosen if isinstance(chosen, dict) else vars(chosen)
    known = StructuredOutputsConfig(**{key: options[key] for key in ("backend", "disable_any_whitespace")})
    assert known.backend == backend.lower()
    assert known.disable_any_whitespace is (whitespace == "Compact")


def test_batch_sharded_sampling_may_be_asked_for(parser: Any) -> None:
    """Every rank masks the rows that it samples: tests/engine has a cell of it."""
    asked = guided_model(parallelism__tensor=2, engine__args=["--enable-batch-sharded-sampling"])
    assert parsed(parser, asked).enable_batch_sharded_sampling is True


def test_revision_is_the_tokenizers_too(parser: Any) -> None:
    arguments = parsed(parser, parse(changed(minimal(), model={"uri": "hf://o/n", "revision": "abc"})))
    assert (arguments.model, arguments.revision, arguments.tokenizer_revision) == ("o/n", "abc", "abc")


def test_an_abbreviation_is_the_option(parser: Any) -> None:
    # Why only full names are on the list: this would override what the operator wrote.
    assert parser.parse_args(["--tensor-par", "4"]).tensor_parallel_size == 4


@pytest.mark.parametrize(
    ("speculative", "told"),
    [
        (
            {"method": "Eagle3", "numTokens": 3, "draftModel": {"uri": "hf://o/head"}, "disableAbove": 8},
            {
                "method": "eagle3",
                "num_speculative_tokens": 3,
                "model": "o/head",
                "draft_tensor_parallel_size": 1,
                "num_speculative_tokens_per_batch_size": [[1, 8, 3], [9, 9, 0]],
            },
        ),
        ({"method": "MTP", "numTokens": 1}, {"method": "mtp", "num_speculative_tokens": 1}),
    ],
)
def test_more_ways_to_speculate(parser: Any, speculative: dict[str, Any], told: dict[str, Any]) -> None:
    assert parsed(parser, guided_model(speculative=speculative)).speculative_config == told


def test_guesses_stop_above_the_batch_that_is_named() -> None:
    from vllm.v1.spec_decode.dynamic.utils import build_dynamic_sd_schedule_lookup

    lookup = build_dynamic_sd_schedule_lookup([[1, 8, 3], [9, 9, 0]], 64, 3)
    assert (lookup[1], lookup[8], lookup[9], lookup[64]) == (3, 3, 0, 0)


def test_adapters_are_understood(parser: Any) -> None:
    adapters = [{"name": "a", "uri": "pvc://adapters/a"}, {"name": "org/b", "uri": "hf://o/b"}]
    lora = {"adapters": adapters, "maxRank": 64, "maxActive": 2, "maxCached": 8}
    arguments = parsed(parser, guided_model(lora=lora))
    found = [(each.name, each.path) for each in arguments.lora_modules]
    assert found == [("a", "/models/adapters/a"), ("org/b", "o/b")]
    limits = (arguments.max_loras, arguments.max_lora_rank, arguments.max_cpu_loras)
    assert (arguments.enable_lora, *limits) == (True, 2, 64, 8)


def test_share_of_memory_and_sequences_are_understood(parser: Any) -> None:
    arguments = parsed(parser, guided_model(engine__gpuMemoryUtilization="0.5", engine__maxNumSeqs=7))
    assert (arguments.gpu_memory_utilization, arguments.max_num_seqs) == (0.5, 7)
