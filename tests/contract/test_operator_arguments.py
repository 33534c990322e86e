"""What the operator knows of vLLM's command line, against vLLM's own parser."""

import re
from pathlib import Path
from typing import Any

import pytest

from guided_operator.api import ManifestError, load, parse
from guided_operator.api.reserved import OWNED, OWNED_ARGS, UNSUPPORTED, UNSUPPORTED_ARGS
from guided_operator.builders import cluster_site, render
from support.manifests import changed, guided_model, minimal

# What vLLM and torch warn of when imported is theirs.
pytestmark = pytest.mark.filterwarnings("ignore")

SAMPLES = sorted(Path(__file__).parents[2].joinpath("manifests", "samples").glob("*.yaml"))
SITE = cluster_site("guidedmodel:1")


@pytest.fixture(scope="module")
def parser() -> Any:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    return make_arg_parser(FlexibleArgumentParser())


def parsed(parser: Any, gm: Any) -> Any:
    return parser.parse_args(render(gm, SITE).deployment.spec.template.spec.containers[0].args)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [(name, OWNED) for name in OWNED_ARGS] + [(name, UNSUPPORTED) for name in UNSUPPORTED_ARGS],
)
def test_refused_argument_exists_and_all_its_forms_are_refused(parser: Any, name: str, pattern: str) -> None:
    (action,) = [action for action in parser._actions if f"--{name}" in action.option_strings]
    forms = [form for form in action.option_strings if not form.startswith("--no-")]
    for form in [
        *forms,
        *(form.replace("-", "_").replace("__", "--", 1) for form in forms if form[:2] == "--"),
    ]:
        assert re.search(pattern, form), form
        assert re.search(pattern, f"{form}=x"), form


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
    speculative = {"method": "DraftModel", "numTokens": 3, "draftModel": draft, "asyncScheduling": asked}
    arguments = parsed(parser, guided_model(speculative=speculative, parallelism__tensor=2))
    assert arguments.async_scheduling is told
    assert arguments.speculative_config == {
        "method": "draft_model",
        "num_speculative_tokens": 3,
        "model": "/models/models/draft",
        "draft_tensor_parallel_size": 2,
    }


@pytest.mark.parametrize("backend", ["Auto", "XGrammar", "Guidance"])
@pytest.mark.parametrize("whitespace", ["Compact", "Flexible"])
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
    # Why validation refuses abbreviations: this would override what the operator wrote.
    assert parser.parse_args(["--tensor-par", "4"]).tensor_parallel_size == 4
