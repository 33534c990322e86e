"""What a rank tells factories of the tokenizer: a token's bytes are what a client reads, by decoding."""

from typing import Any

import pytest

from guided_grammar.registry import Backends, Tokenizer
from support import tokenizers

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


class Known:
    """A tokenizer as vLLM has it: it says which id is its largest."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.max_token_id = len(tokenizer) - 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)


@pytest.mark.parametrize("name", ["awkward", "chat"])
def test_a_token_s_bytes_are_its_text_and_special_tokens_have_none(name: str) -> None:
    from guided_engine.compat import runner_worker

    tokenizer = getattr(tokenizers, name)()
    padded = len(tokenizer) + 7
    backends = Backends(Tokenizer(tokenizer, padded))
    texts, stop_tokens = runner_worker._texts(backends, Known(tokenizer), padded)
    assert len(texts) == padded
    assert list(texts[len(tokenizer) :]) == [b""] * 7
    assert tokenizer.eos_token_id in stop_tokens
    for index in range(len(tokenizer)):
        read = tokenizer.decode([index], skip_special_tokens=True, clean_up_tokenization_spaces=False)
        # The libraries have no text for 0xff, which no UTF-8 has.
        is_no_text = tokenizer.convert_ids_to_tokens(index) == "ÿ"
        assert texts[index].decode(errors="replace") == ("" if is_no_text else read), index
