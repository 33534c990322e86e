"""What the operator knows of vLLM's command line, against vLLM's own parser."""

import dataclasses
import functools
import inspect
import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from guided_engine import versions
from guided_operator.api import ManifestError, engine_env, load, parse
from guided_operator.api.engine_args import REFUSED
from guided_operator.api.speculative import Speculative
from guided_operator.builders import cluster_site, render
from guided_operator.policy.arguments import VOCABULARIES, repositories
from guided_operator.policy.installation_limits import Limits
from guided_operator.policy.spec_checks import check
from guided_operator.policy.vllm_0_32 import VLLM_0_32
from support.manifests import changed, guided_model, minimal
from support.no_repositories import NO_REPOSITORY

# What vLLM and torch warn of when imported is theirs.
pytestmark = pytest.mark.filterwarnings("ignore")

SAMPLES = sorted(Path(__file__).parents[2].joinpath("manifests", "samples").glob("*.yaml"))
SITE = cluster_site("guidedmodel:1")
KNOWN = VLLM_0_32
UNLISTED = frozenset().union(*KNOWN.unlisted.values())


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


def test_the_installed_vllm_is_the_one_that_is_known() -> None:
    installed = versions.installed_vllm() or ""
    assert VOCABULARIES[installed.split("+", 1)[0]] is KNOWN


def test_every_option_of_vllm_is_listed_or_unlisted_or_refused(parser: Any) -> None:
    """An option that a new vLLM has stands on the left side alone, one that it dropped on the right."""
    mine = {f"--{name}" for name in KNOWN.listed | UNLISTED | REFUSED.keys()}
    assert set(actions(parser)) == mine
    parts = {part.split(".", 1)[0] for part in KNOWN.parts}
    assert parts <= REFUSED.keys(), "only of what is refused as a whole are there parts to list"


def test_listed_options_take_as_many_values_as_vllm_takes(parser: Any) -> None:
    found = actions(parser)
    for name in KNOWN.switches:
        assert f"--no-{name}" in found[f"--{name}"].option_strings, name
    assert {found[f"--{name}"].nargs for name in KNOWN.switches} == {0}
    assert {found[f"--{name}"].nargs for name in KNOWN.values | KNOWN.configurations} == {None}
    assert {found[f"--{name}"].nargs for name in KNOWN.lists} == {"+"}


def test_vllm_takes_a_listed_part_as_the_operator_has_it_written(parser: Any) -> None:
    values = {"compile-sizes": "[1]", "cudagraph-mode": "NONE", "mode": "3"}
    for name in KNOWN.parts:
        option, _, part = name.partition(".")
        for spelt in {part, part.replace("-", "_")}:
            word = f"--{option}.{spelt}={values[part]}"
            faults = [*Limits(arguments="Listed").check(guided_model(engine__args=[word]))]
            try:
                taken = parser.parse_args([word]).compilation_config
            except SystemExit:
                assert faults, word
            else:
                assert getattr(taken, spelt) is not None
                assert faults == [], word


# How vLLM speaks of an option by which files are found.
OF_FILES = re.compile(
    r"\b(paths?|repos?|repositor\w+|folders?|director(y|ies)|files?|hub|hugging ?face|urls?|checkpoints?)\b",
    re.IGNORECASE,
)
OF_THAT_KIND = re.compile("config|dir$|file|kwargs|model|overrides|path|repo|template|tokenizer|uri|url")


def described() -> dict[str, str]:
    """Return what vLLM says of its options: of each field of a class, in its source."""
    from vllm import config
    from vllm.config.utils import get_attr_docs
    from vllm.engine import arg_utils
    from vllm.entrypoints.launchers import cli_args

    found: dict[str, str] = {}
    for module in (config, arg_utils, cli_args):
        for kind in vars(module).values():
            if inspect.isclass(kind) and dataclasses.is_dataclass(kind):
                for name, text in get_attr_docs(kind).items():
                    option = name.replace("_", "-")
                    found[option] = f"{found.get(option, '')} {text}"
    return found


def test_every_allowed_option_that_may_name_a_repository_is_under_the_limits_or_has_a_reason() -> None:
    said = described()
    assert len(said) > 300, "vLLM has moved what it says of its options"
    allowed = KNOWN.listed
    suspect = {name for name in allowed if OF_FILES.search(said.get(name, "")) or OF_THAT_KIND.search(name)}
    limited = {*KNOWN.repositories, *KNOWN.with_repositories}
    others = {name for names in NO_REPOSITORY.values() for name in names.split()}
    assert limited & others == set()
    assert limited | others == suspect


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
    "--{}.{}{}".format,
    st.sampled_from(sorted(KNOWN.with_repositories)),
    st.sampled_from(["a", "a.b", "c+"]),
    st.just(""),
)
NAMING = st.one_of(
    st.tuples(
        st.sampled_from([f"--{name}" for name in (*KNOWN.repositories, "hf_overrides")]), EVIL | JSON_TEXTS
    ),
    st.tuples(st.sampled_from([f"--{name}" for name in sorted(KNOWN.with_repositories)]), JSON_TEXTS),
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
        read = vars(_parser().parse_args(words))
    except (SystemExit, TypeError, AttributeError):  # vLLM does not start with it
        return
    fields = [name.replace("-", "_") for name in (*KNOWN.repositories, *KNOWN.with_repositories)]
    # As if the API server had not looked: not each of these words would get past it.
    gm = guided_model()
    engine = gm.spec.engine.model_copy(update={"args": words})
    gm = gm.model_copy(update={"spec": gm.spec.model_copy(update={"engine": engine})})
    seen = {name for _, _, name in repositories(gm)}
    missed = {
        text for field in fields for text in texts(read[field]) if not any(text in name for name in seen)
    }
    assert missed == set()


def test_overrides_load_other_repositories(monkeypatch: pytest.MonkeyPatch) -> None:
    # Why limits.models holds for the texts in them: vLLM reads this one as soon as it is overridden.
    from vllm.transformers_utils import config
    from vllm.transformers_utils.configs.ultravox import UltravoxConfig

    asked: list[str] = []
    model = UltravoxConfig()
    monkeypatch.setattr(config, "get_config", lambda name, **_: asked.append(name))
    model.update({"text_model_id": "evil/repo"})
    assert asked == ["evil/repo"]


WORDS = st.sampled_from([f"--{name}" for name in sorted(KNOWN.listed | UNLISTED | REFUSED.keys())])
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
        [form for name in sorted(KNOWN.switches) for form in (f"--{name}", f"--no_{name.replace('-', '_')}")]
    )
    | st.sampled_from(
        ["--seed=1", "--max-logprobs=2", "--block-size", "7", "-1", "--hf-overrides.a=1", "--dtype=auto"]
    )
    | st.sampled_from([f"--{name}" for name in sorted(KNOWN.lists)])
)
BAD = st.builds("{}{}".format, WORDS | st.just(""), NASTY) | WORDS.map(lambda word: word[:-1])
DRAWN_WORDS = st.lists(GOOD | GOOD | GOOD | BAD, min_size=1, max_size=4)


@settings(max_examples=400)
@given(DRAWN_WORDS, st.sampled_from(["Listed", "Any"]))
@example(["--aggregate-engine-logging.x=evil/model"], "Any")  # found by a draw: a switch with a part
def test_nothing_owned_is_overridden_by_words_that_are_taken(words: list[str], allowed: Any) -> None:
    """Whatever passes, vLLM's own parser reads the operator's options as the operator wrote them."""
    manifest = changed(minimal(), engine__args=words, parallelism__tensor=2)
    try:
        gm = parse(manifest)
    except ManifestError:
        return
    if check(gm) or Limits(arguments=allowed).check(gm):
        return
    try:
        seen = vars(parsed(_parser(), gm))
    except SystemExit:  # a value that vLLM does not understand: it does not start
        return
    plain = vars(parsed(_parser(), guided_model(parallelism__tensor=2)))
    changed_by_words = {name for name in plain if seen[name] != plain[name]}
    options = KNOWN.listed | (UNLISTED if allowed == "Any" else frozenset())
    assert changed_by_words <= {name.replace("-", "_") for name in options}


@pytest.mark.parametrize("words", [["--seed", "7", "evil/model"], ["--enforce-eager", "evil/model"]])
def test_a_stray_word_is_the_model(parser: Any, words: list[str]) -> None:
    # Why validation counts values: this would serve another model than the resource names.
    assert parser.parse_args(words).model_tag == "evil/model"


def test_every_variable_of_vllm_is_listed_or_unlisted_or_refused() -> None:
    from vllm import envs

    own = {name for name in envs.environment_variables if name.startswith("VLLM_")}
    unlisted = frozenset().union(*KNOWN.unlisted_variables.values())
    listed = {name for name in KNOWN.variables if name.startswith("VLLM_")}
    assert listed & unlisted == set()
    assert {name for name in own if not engine_env.refusal(name)} == listed | unlisted


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_samples_command_line_is_understood(parser: Any, sample: Path) -> None:
    gm = load(sample.read_text())
    arguments = parsed(parser, gm)
    assert arguments.served_model_name == [gm.served_name]
    assert arguments.tensor_parallel_size == gm.spec.parallelism.tensor
    assert arguments.max_model_len == gm.spec.engine.max_model_len


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
        (
            {
                "method": "DSpark",
                "numTokens": 5,
                "draftSampling": "Probabilistic",
                "verification": "Adaptive",
            },
            {
                "method": "dspark",
                "num_speculative_tokens": 5,
                "draft_sample_method": "probabilistic",
                "enable_adaptive_verification": True,
            },
        ),
    ],
)
def test_more_ways_to_speculate(parser: Any, speculative: dict[str, Any], told: dict[str, Any]) -> None:
    assert parsed(parser, guided_model(speculative=speculative)).speculative_config == told


def test_vllm_knows_each_way_to_speculate_by_the_name_that_it_is_told() -> None:
    """The parser takes any JSON; the configuration made of it knows fields and names."""
    from vllm.config import speculative as upstream

    def told(**asked: Any) -> dict[str, Any]:
        model = guided_model(speculative={"numTokens": 3, **asked})
        arguments = render(model, SITE).template.spec.containers[0].args
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


def test_an_adapter_has_no_revision_that_vllm_could_be_told() -> None:
    """Why lora.adapters has none: once vLLM has a word for it, so has the resource."""
    from vllm.entrypoints.openai.models.protocol import LoRAModulePath

    assert "revision" not in {field.name for field in dataclasses.fields(LoRAModulePath)}


def test_share_of_memory_and_sequences_are_understood(parser: Any) -> None:
    arguments = parsed(parser, guided_model(engine__gpuMemoryUtilization="0.5", engine__maxNumSeqs=7))
    assert (arguments.gpu_memory_utilization, arguments.max_num_seqs) == (0.5, 7)
