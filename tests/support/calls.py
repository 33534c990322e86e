"""Tool calls as vLLM's parsers write them: their tags, a vocabulary with their tokens, and drawn calls."""

import copy
import dataclasses
import functools
import json
import random
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from guided_contract.compatibility import minor_of
from guided_engine.matchers.loaded_grammars import LoadedGrammars
from guided_engine.versions import installed_vllm
from guided_grammar.masks import words as mask_words
from guided_grammar.matching import Matcher
from support import tokenizers

# Tags and parsers that the installed vLLM has not.
MISSING = {"longcat", "mimo", "plamo3", "qwen3_json"} if minor_of(installed_vllm() or "") == "0.31" else set()
# Tags whose calls hold elements, or JSON, by the parsers that read them; those of all others have a form of
# their own.
IN_ELEMENTS = {
    "glm_4_7": ("glm45", "glm47", "ling3"),
    "mimo": ("mimo",),
    "minimax": ("minimax_m2",),
    "qwen_3_5": (),
    "qwen_3_coder": ("qwen3_coder", "qwen3_xml", "step3p5"),
}
BY_GUIDANCE = {
    **IN_ELEMENTS,
    "deepseek_r1": ("deepseek_v3",),
    "deepseek_v3_1": ("deepseek_v31",),
    "harmony": ("openai",),
    "hermes": ("hermes", "qwen3_json"),
    "kimi": ("kimi_k2",),
    "kimi_k3": ("kimi_k3",),
    "llama": ("llama3_json", "llama4_json"),
    "longcat": ("longcat",),
    "plamo3": ("plamo3",),
    "qwen_3": (),
}
BY_GUIDANCE = {
    tag: tuple(parser for parser in parsers if parser not in MISSING)
    for tag, parsers in BY_GUIDANCE.items()
    if tag not in MISSING
}
BY_XGRAMMAR = {
    "deepseek_v3_2": ("deepseek_v32",),
    "deepseek_v4": ("deepseek_v4",),
    "deepseek_v4_1": ("deepseek_v41",),
    "hy_v4": ("hy_v4",),
}
NAMES = ("get", "get_all")  # one begins as the other


def request(parameters: Any, choice: Any = "required") -> Any:
    """Return a chat's request of vLLM's, with two strict tools."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    tools = [
        {"type": "function", "function": {"name": name, "strict": True, "parameters": parameters}}
        for name in NAMES
    ]
    return ChatCompletionRequest.model_validate({"messages": [], "tools": tools, "tool_choice": choice})


def tag_of(model: str, asked: Any) -> dict[str, Any]:
    """Return the structural tag of a form of calls."""
    from vllm.parser import harmony  # registers one
    from vllm.tool_parsers.structural_tag_registry import get_model_structural_tag

    assert harmony
    tag = get_model_structural_tag(model, asked.tools, asked.tool_choice, reasoning=False)
    assert tag is not None
    found: dict[str, Any] = json.loads(tag.model_dump_json())
    return found


def vocabulary_of(tag: Any) -> tuple[Any, Any]:
    """Return a tokenizer that has the tokens which a tag names, and the vocabulary of grammar workers."""
    return _vocabulary("".join(sorted(_texts(tag))))


@functools.cache
def _vocabulary(texts: str) -> tuple[Any, Any]:
    from tokenizers import AddedToken

    tokenizer = copy.deepcopy(tokenizers.awkward())
    special = {*re.findall(r"<[|｜][^<>]*[|｜]>", texts), "<|im_start|>", "<|python_tag|>"}  # noqa: RUF001 - theirs
    added = {*re.findall(r"</?[a-z_:]+>", texts)}
    tokenizer.add_tokens([AddedToken(text, special=True) for text in sorted(special)])
    tokenizer.add_tokens([AddedToken(text, special=False) for text in sorted(added)])
    return tokenizer, tokenizers.vocabulary(tokenizer)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, dict):
        for key, one in value.items():
            if key != "json_schema":
                yield from _texts(one)


def allowed(matcher: Matcher, size: int) -> list[int]:
    """Return the tokens that a matcher allows, with what is counted beside its grammar."""
    row: Any = np.full((1, mask_words(size)), -1, dtype=np.int32)
    matcher.fill(row, 0)
    bits = np.unpackbits(row[0].view(np.uint8), bitorder="little")
    return [int(token) for token in np.flatnonzero(bits[:size])]


@dataclasses.dataclass
class Drawing:
    """Draws texts of a grammar that ranks have loaded."""

    ranks: LoadedGrammars
    tokens: list[bytes]
    tokenizer: Any

    def text(self, key: str, chance: random.Random, most: int = 300) -> str:
        """Return a drawn text to its end, as vLLM decodes it for tool parsers; "": it got too long."""
        matcher = self.ranks.matcher(key, None)
        taken: list[int] = []
        while len(taken) < most:
            among = allowed(matcher, len(self.tokens))
            ends = [token for token in among if self.tokens[token][:1] in (b'"', b"}", b"]")]
            special = [token for token in among if not self.tokens[token] and token != tokenizers.EOS]
            is_end = among == [tokenizers.EOS] or chance.random() < 0.5 + len(taken) / 100
            if tokenizers.EOS in among and is_end:
                return str(self.tokenizer.decode(taken, skip_special_tokens=False))
            if ends and (len(taken) > 60 or chance.random() < 0.3):
                among = ends
            elif special and chance.random() < 0.5:
                among = special
            taken.append(chance.choice([token for token in among if token != tokenizers.EOS]))
            assert matcher.accept(taken[-1:])
        return ""
