"""What the operator writes, takes and refuses of vLLM's command line, against vLLM's own parser."""

import dataclasses
import functools
import itertools
import json
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from guided_engine.compat.serve import make_parser
from guided_engine.cpus import Cpus
from guided_engine.launcher.command import plan
from guided_engine.versions import installed_vllm
from guided_operator.api import GuidedModel, ManifestError, parse
from guided_operator.api.speculative import Speculative
from guided_operator.builders.configuration import pod_config
from guided_operator.builders.pod import pod_template
from guided_operator.builders.pod_paths import Site
from guided_operator.policy.arguments import (
    REPOSITORIES,
    WITH_REPOSITORIES,
    ArgumentLimits,
    repositories,
)
from guided_operator.policy.reserved_options import REFUSED, refusal
from guided_operator.policy.spec_checks import check
from support.manifests import changed, guided_model, load, minimal

# What vLLM and torch warn of when imported is theirs.
pytestmark = pytest.mark.filterwarnings("ignore")

SAMPLES = sorted(Path(__file__).parents[2].joinpath("manifests", "samples").glob("*.yaml"))
SITE = Site("guidedmodel:1")


# Options that an older vLLM does not have.
SINCE = {"grpc-port": "0.32", "watchdog-config": "0.33"}


@functools.cache
def parser() -> Any:
    return make_parser()


def parsed(gm: GuidedModel) -> Any:
    return parser().parse_args(pod_template(gm, SITE)["spec"]["containers"][0]["args"])


def actions() -> dict[str, Any]:
    """Return vLLM's options by their long names, without the forms that deny them."""
    forms = [
        [form for form in action.option_strings if form.startswith("--") and not form.startswith("--no-")]
        for action in parser()._actions
    ]
    # Since 0.33 an option to enable something has one to disable it, and the other way round.
    return {
        form: action
        for action, own in zip(parser()._actions, forms, strict=True)
        for form in own
        if form == own[0] or not form.startswith(("--disable-", "--enable-"))
    }


def test_reserved_options_are_vllms_and_nothing_else_is_refused() -> None:
    """Also not by being the beginning of one: then the name is to be added to EXCEPTED."""
    found = actions()
    here = installed_vllm() or ""
    known = {name for name in REFUSED if SINCE.get(name, "") <= here}
    assert {f"--{name}" for name in (*known, *REPOSITORIES, *WITH_REPOSITORIES)} <= found.keys()
    refused = {name for name in found if refusal(name)}
    assert refused == {f"--{name}" for name in known}


def test_what_is_refused_is_in_every_form_that_vllm_takes() -> None:
    for action in parser()._actions:
        forms = [form for form in action.option_strings if form.startswith("--")]
        assert len({bool(refusal(form)) for form in forms}) < 2, forms


def test_what_is_denied_is_in_every_form_that_vllm_takes() -> None:
    for action in parser()._actions:
        forms = {form for form in action.option_strings if form.startswith("--") and not refusal(form)}
        for denied, form in itertools.permutations(forms, 2):
            gm = guided_model(engine__args=[form])
            assert [*ArgumentLimits(deny=(denied,)).check(gm)], f"{form} although {denied} is denied"


def test_parts_that_are_excepted_are_vllms() -> None:
    for part, value in {"compile_sizes": "[1]", "cudagraph_mode": "NONE", "mode": "3"}.items():
        word = f"--compilation-config.{part}={value}"
        assert refusal(word) == ""
        assert getattr(parser().parse_args([word]).compilation_config, part) is not None


EVIL = st.sampled_from(["evil/repo", "evil/repo--code.Model", "/mnt/evil"])
ANY_JSON = st.recursive(
    EVIL | st.integers() | st.just("plain"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab/"), inner, max_size=2),
    max_leaves=4,
)
JSON_TEXTS = st.builds(
    lambda value, escaped: json.dumps(value).replace("/", "\\u002f") if escaped else json.dumps(value),
    st.dictionaries(st.sampled_from(["a", "text_model_id"]), ANY_JSON, min_size=1, max_size=2),
    st.booleans(),
)
NAMED_PARTS = st.builds(
    "--{}.{}".format, st.sampled_from(WITH_REPOSITORIES), st.sampled_from(["a", "a.b", "c+"])
)
NAMING = st.one_of(
    st.tuples(st.sampled_from([f"--{name}" for name in (*REPOSITORIES, "hf_overrides")]), EVIL | JSON_TEXTS),
    st.tuples(st.sampled_from([f"--{name}" for name in WITH_REPOSITORIES]), JSON_TEXTS),
    st.tuples(NAMED_PARTS, EVIL | ANY_JSON.map(json.dumps)),
)


def texts(value: Any) -> set[str]:
    if isinstance(value, dict | list):
        return {
            text for item in (value.values() if isinstance(value, dict) else value) for text in texts(item)
        }
    return {value} if isinstance(value, str) and "/" in value else set()


@settings(max_examples=200)
@given(st.lists(st.tuples(NAMING, st.booleans()), min_size=1, max_size=3))
def test_whatever_repository_vllm_reads_in_arguments_is_seen(
    drawn: list[tuple[tuple[str, str], bool]],
) -> None:
    words = [word for pair, joined in drawn for word in (["=".join(pair)] if joined else [*pair])]
    try:
        read = vars(parser().parse_args(words))
    except (SystemExit, TypeError, AttributeError):  # vLLM does not start with it
        return
    fields = [name.replace("-", "_") for name in (*REPOSITORIES, *WITH_REPOSITORIES)]
    # As if the API server had not looked: not each of these words would get past it.
    gm = guided_model()
    engine = gm.spec.engine.model_copy(update={"args": words})
    gm = gm.model_copy(update={"spec": gm.spec.model_copy(update={"engine": engine})})
    seen = {name for _, _, name in repositories(gm)}
    missed = {
        text for field in fields for text in texts(read[field]) if not any(text in name for name in seen)
    }
    assert missed == set()


WORDS = st.deferred(lambda: st.sampled_from(sorted(actions())))
NASTY = st.text(st.characters(codec="utf-8"), max_size=8) | st.sampled_from(
    [*("\n", "\n--model=x", "=x", ".x=y", "--", "-", "_", " ", "\t--config=/x", "\x00", "=--model", "-tp=2")]
)
# What is meant well, too: else nothing of what is drawn would get as far as vLLM's parser.
GOOD = st.sampled_from(
    [
        *("--seed=1", "--max-logprobs=2", "--block-size", "7", "-1", "--hf-overrides.a=1", "--dtype=auto"),
        *("--enforce-eager", "--no_enable_prefix_caching", "--cudagraph-capture-sizes", "--ignore-patterns"),
        *("--kv-transfer-config={}", "--disable-log-stats", "--runner=generate"),
    ]
)
BAD = st.builds("{}{}".format, WORDS | st.just(""), NASTY) | WORDS.map(lambda word: word[:-1])
DRAWN_WORDS = st.lists(GOOD | GOOD | GOOD | BAD, min_size=1, max_size=4)


def started(gm: GuidedModel) -> list[str]:
    """Return the words that vLLM gets, by the operator and the launcher."""
    words = pod_template(gm, SITE)["spec"]["containers"][0]["args"]
    return [*plan(pod_config(gm, SITE), words, {}, Cpus(1)).argv[3:]]  # behind python3 -m MODULE


@settings(max_examples=400)
@given(DRAWN_WORDS)
@example(["--aggregate-engine-logging.x=evil/model"])  # found by a draw: a switch with a part
@example(["--enforce-eager", "evil/model"])
@example(["--hf-overrides.a", "--seed", "evil/model"])
@example(["--hf-overrides.a"])
def test_nothing_owned_is_overridden_by_words_that_are_taken(words: list[str]) -> None:
    """Whatever passes, vLLM's own parser reads the operator's options as the operator wrote them."""
    try:
        gm = parse(changed(minimal(), engine__args=words, parallelism__tensor=2))
    except ManifestError:
        return
    if check(gm):
        return
    try:
        seen = vars(parser().parse_args(started(gm)))
    except SystemExit:  # a word or a value that vLLM does not understand: it does not start
        return
    plain = vars(parser().parse_args(started(guided_model(parallelism__tensor=2))))
    owned = {action.dest for name, action in actions().items() if refusal(name)} | {"model_tag"}
    assert {name for name in owned & plain.keys() if seen[name] != plain[name]} <= {"compilation_config"}


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_samples_command_line_is_understood(sample: Path) -> None:
    gm = load(sample.read_text())
    arguments = parsed(gm)
    assert arguments.served_model_name == [gm.served_name]
    assert arguments.tensor_parallel_size == gm.spec.parallelism.tensor


@pytest.mark.parametrize(("backend", "whitespace"), [("Auto", "Flexible"), ("XGrammar", "Compact")])
def test_vllms_own_path_is_configured_as_vllm_allows(backend: str, whitespace: str) -> None:
    guided = {"placement": "Scheduler", "backend": backend, "whitespace": whitespace}
    from vllm.config.structured_outputs import StructuredOutputsConfig

    chosen = parsed(guided_model(guidedDecoding=guided)).structured_outputs_config
    options = chosen if isinstance(chosen, dict) else vars(chosen)
    known = StructuredOutputsConfig(**{key: options[key] for key in ("backend", "disable_any_whitespace")})
    assert known.backend == backend.lower()
    assert known.disable_any_whitespace is (whitespace == "Compact")


def test_vllm_knows_each_way_to_speculate_by_the_name_that_it_is_told() -> None:
    """The parser takes any JSON; the configuration made of it knows fields and names."""
    from vllm.config import speculative as upstream

    def told(**asked: Any) -> dict[str, Any]:
        model = guided_model(speculative={"numTokens": 3, **asked})
        arguments = pod_template(model, SITE)["spec"]["containers"][0]["args"]
        found: dict[str, Any] = json.loads(arguments[arguments.index("--speculative-config") + 1])
        return found

    draft = {"draftModel": {"uri": "hf://o/head"}}
    methods = {"NGram": {}, "DraftModel": draft, "Eagle3": draft, "MTP": {}, "DSpark": {}, "DFlash": draft}
    assert {*get_args(Speculative.model_fields["method"].annotation)} == methods.keys()
    made = [told(method=method, **more) for method, more in methods.items()]
    assert {each["method"] for each in made} <= {*get_args(upstream.SpeculativeMethod)}
    asked = told(method="DSpark", draftSampling="Probabilistic", verification="Block")
    assert asked["draft_sample_method"] in get_args(upstream.DraftSampleMethod)
    assert asked["rejection_sample_method"] in get_args(upstream.RejectionSampleMethod)
    fields = {field.name: field.default for field in dataclasses.fields(upstream.SpeculativeConfig)}
    assert {name for each in [*made, asked] for name in each} <= fields.keys()
    # What is not said is what the resource's defaults say.
    assert (fields["draft_sample_method"], fields["rejection_sample_method"]) == ("greedy", "standard")
    assert fields["enable_adaptive_verification"] is False


def test_adapters_are_understood() -> None:
    adapters = [{"name": "a", "uri": "pvc://adapters/a"}, {"name": "org/b", "uri": "hf://o/b"}]
    arguments = parsed(guided_model(lora={"adapters": adapters}, engine__args=["--max-loras", "2"]))
    found = [(each.name, each.path) for each in arguments.lora_modules]
    assert found == [("a", "/models/adapters/a"), ("org/b", "o/b")]
    assert (arguments.enable_lora, arguments.max_loras) == (True, 2)
