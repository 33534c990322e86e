"""Whether two processes have the same tokenizer: what changes masks changes its fingerprint."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from devtools import tinymodel

from guided_contract import fingerprint
from guided_grammar import registry
from guided_grammar.backend import BackendError
from guided_grammar.registry import library
from support import tokenizers

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries' own imports warn
TINY = tinymodel.models() / "tiny"
Tokenizer = dict[str, Any]


def fingerprints(tokenizer: Any, size: int = tinymodel.VOCAB) -> dict[Any, str]:
    return registry.fingerprints(registry.Tokenizer(tokenizer, size))


def loaded(folder: Path, change: Callable[[Tokenizer], None] = lambda _: None, **config: object) -> Any:
    """Return the tiny model's tokenizer with its two files changed."""
    from transformers import AutoTokenizer

    folder.mkdir(exist_ok=True)
    about = json.loads((TINY / "tokenizer.json").read_text())
    change(about)
    (folder / "tokenizer.json").write_text(json.dumps(about))
    named = json.loads((TINY / "tokenizer_config.json").read_text()) | config
    (folder / "tokenizer_config.json").write_text(json.dumps(named))
    (folder / "config.json").write_text((TINY / "config.json").read_text())
    return AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> dict[Any, str]:
    return fingerprints(loaded(tmp_path_factory.mktemp("tokenizer")))


def swap(about: Tokenizer) -> None:
    """Give two tokens each other's numbers."""
    vocabulary = about["model"]["vocab"]
    first, second = list(vocabulary)[-2:]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]


def add_special(about: Tokenizer) -> None:
    """Make a token of text a special one."""
    text, number = list(about["model"]["vocab"].items())[-1]
    token = about["added_tokens"][0] | {"id": number, "content": text, "special": True}
    about["added_tokens"].append(token)


def merge_less(about: Tokenizer) -> None:
    """Take away a merge: its token stays, and text is never written with it."""
    about["model"]["merges"].pop()


def reorder(about: Tokenizer) -> None:
    about["added_tokens"].reverse()
    about["model"]["vocab"] = dict(reversed(about["model"]["vocab"].items()))


BOTH = ["xgrammar", "guidance"]


@pytest.mark.parametrize(
    ("made", "differing"),
    [
        (lambda folder: fingerprints(loaded(folder, swap)), BOTH),
        (lambda folder: fingerprints(loaded(folder, add_special)), BOTH),
        # Where a grammar forces a text, llguidance allows the tokens that the tokenizer makes of it.
        (lambda folder: fingerprints(loaded(folder, merge_less)), ["guidance"]),
        (lambda folder: fingerprints(loaded(folder, eos_token="<|pad|>")), BOTH),
        # A row of logits has as many columns as the model has tokens: hf_overrides may say how many.
        (lambda folder: fingerprints(loaded(folder), tinymodel.VOCAB + 64), BOTH),
        (lambda folder: fingerprints(loaded(folder, reorder)), []),  # no mask depends on it
    ],
)
def test_what_changes_masks_is_another_tokenizer(
    tmp_path: Path, ours: dict[Any, str], made: Any, differing: list[str]
) -> None:
    assert fingerprint.differing(ours, made(tmp_path)) == differing


def test_a_library_that_cannot_read_a_tokenizer_leaves_the_other(tmp_path: Path) -> None:
    def metaspace(about: Tokenizer) -> None:
        about["decoder"] = {
            "type": "Metaspace",
            "replacement": "\u2581",
            "prepend_scheme": "always",
            "split": True,
        }

    form = registry.Tokenizer(loaded(tmp_path, metaspace), tinymodel.VOCAB)
    assert list(registry.fingerprints(form)) == ["xgrammar"]
    backends = registry.Backends(form)
    assert backends["xgrammar"].vocab_size == tinymodel.VOCAB
    with pytest.raises(BackendError, match="decoder"):
        backends["guidance"]


class Slow:
    """The same tokenizer by a class of Python's, as xgrammar knows it: it has an encoding of tiktoken's."""

    def __init__(self, fast: Any) -> None:
        import tiktoken

        self._fast = fast
        self.eos_token_id = fast.eos_token_id
        self.tokenizer = tiktoken.Encoding("slow", pat_str=".", mergeable_ranks={b"a": 0}, special_tokens={})

    def get_vocab(self) -> dict[str, int]:
        vocabulary: dict[str, int] = self._fast.get_vocab()
        return vocabulary

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fast, name)


def test_a_slow_class_reads_the_same_tokenizer(tmp_path: Path, ours: dict[Any, str]) -> None:
    info = library("xgrammar").read(Slow(loaded(tmp_path)), tinymodel.VOCAB)

    assert not fingerprint.differing(ours, {"xgrammar": library("xgrammar").fingerprint(info)})


def test_vllms_own_class_reads_the_same_tokenizer(ours: dict[Any, str]) -> None:
    """That processes do, too, is seen in each pod: a rank whose fingerprint differs is refused."""
    from vllm.config import ModelConfig

    from guided_engine.compat.runner_vocabulary import EngineVocabulary

    config = SimpleNamespace(
        model_config=ModelConfig(model=str(TINY)),
        structured_outputs_config=SimpleNamespace(
            disable_any_whitespace=False, disable_additional_properties=False
        ),
        speculative_config=None,
    )
    assert registry.fingerprints(EngineVocabulary(config)) == ours


class Known:
    """A tokenizer as vLLM has it: it says which id is its largest."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.max_token_id = len(tokenizer) - 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


@pytest.mark.engine
@pytest.mark.parametrize("name", ["awkward", "chat"])
def test_a_token_s_bytes_are_its_text_and_special_tokens_have_none(name: str) -> None:
    from guided_engine.compat import runner_worker

    tokenizer = getattr(tokenizers, name)()
    padded = len(tokenizer) + 7
    backends = registry.Backends(registry.Tokenizer(tokenizer, padded))
    texts, stop_tokens = runner_worker._texts(backends, Known(tokenizer), padded)
    assert len(texts) == padded
    assert list(texts[len(tokenizer) :]) == [b""] * 7
    assert tokenizer.eos_token_id in stop_tokens
    for index in range(len(tokenizer)):
        read = tokenizer.decode([index], skip_special_tokens=True, clean_up_tokenization_spaces=False)
        # The libraries have no text for 0xff, which no UTF-8 has.
        is_no_text = tokenizer.convert_ids_to_tokens(index) == "ÿ"
        assert texts[index].decode(errors="replace") == ("" if is_no_text else read), index
