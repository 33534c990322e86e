"""Where a constraint holds on an engine with each of vLLM's reasoning parsers: docs/reasoning.md's table.

Each is made with a vocabulary that has all marks that vLLM's parsers name. `UPDATE=1` writes the table.
"""

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from devtools import tinymodel

from guided_engine.matchers.reasoning import AT_ONCE, Reasoning

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

PAGE = Path(__file__).parents[2] / "docs/reasoning.md"
MARK = re.compile(r"""["'](<[^"'\s<>{}\\]{1,40}>)["']""")
# What ends reasoning where a parser does not say it, or not all of it.
ENDS = {
    "hunyuan_a13b": "\n</think>\n<answer>\n",
    "inkling": "<|end_message|><|message_model|><|content_text|>",
    "minimax_m2_append_think": "</think>",
    "muse": "<|eom|>",
    "muse_glimmer": "<|eom|>",
    "musespark1x": "<|eom|>",
}
ON = {"enable_thinking": True, "thinking": True, "thinking_mode": "enabled", "reasoning_effort": "high"}
OFF = {"enable_thinking": False, "thinking": False}
# Each needs more than marks: a tokenizer of its own kind.
OTHER_TOKENIZERS = {"beam", "hf", "mistral", "olmo3", "response_template"}


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    import vllm
    from transformers import AutoTokenizer

    root = Path(vllm.__file__).parent
    files = [*root.glob("reasoning/*.py"), *root.glob("parser/**/*.py")]
    found = AutoTokenizer.from_pretrained(tinymodel.models() / "tiny")
    found.add_tokens(sorted({mark for file in files for mark in MARK.findall(file.read_text())}))
    return found


def held_from(parser: Any, end: str | None, tokenizer: Any) -> str:
    """Return where a constraint begins to hold in the answer to a prompt without marks of its own."""
    from guided_engine.compat.runner_reasoning import EngineReasoner

    stop = tokenizer.eos_token_id
    matcher: Any = SimpleNamespace(ends=frozenset([stop]), valid_prefix=len)
    prompt = tokenizer.encode("Say yes or no.")
    reasoning = Reasoning(lambda: EngineReasoner(parser), prompt, matcher, has_ended=None)
    if reasoning.opening(()) == AT_ONCE:
        return "first token"
    assert end
    said = tokenizer.encode(f"It is a question.{end}", add_special_tokens=False)
    for known, token in enumerate(said):  # one by one, as they are sampled
        opening = reasoning.opening([stop])
        assert (opening.taken, stop in opening.held_back) == (0, True), "it may end without its answer"
        assert reasoning.accept(known, [token]) == 1
    if reasoning.opening(()) != AT_ONCE:
        return "never"
    assert reasoning.accept(len(said), tokenizer.encode('"yes"')) == 0
    return f"after `{end}`".replace("|", r"\|")


def test_the_page_says_where_constraints_hold_with_each_parser(tokenizer: Any) -> None:
    from vllm.reasoning import ReasoningParserManager

    together: dict[tuple[str, str], list[str]] = {}
    for name in sorted({*ReasoningParserManager.lazy_parsers} - OTHER_TOKENIZERS):  # vLLM's own
        kind = ReasoningParserManager.get_reasoning_parser(name)
        made = [kind(tokenizer, chat_template_kwargs=arguments) for arguments in (ON, OFF)]
        end = ENDS.get(name, made[0].reasoning_end_str)
        on, off = (held_from(parser, end, tokenizer) for parser in made)
        together.setdefault((on, off), []).append(f"`{name}`")
    rows = [f"| {', '.join(names)} | first token | {on} | {off} |\n" for (on, off), names in together.items()]
    head, rest = PAGE.read_text().split("| --- | --- | --- | --- |\n")
    written, tail = rest.split("\n\n", 1)
    if os.environ.get("UPDATE"):  # by the newest vLLM, which has them all
        PAGE.write_text(f"{head}| --- | --- | --- | --- |\n{''.join(rows)}\n{tail}")
    assert parsed("".join(rows)).items() <= parsed(written).items()


def parsed(rows: str) -> dict[str, str]:
    """Return what a table says of each parser."""
    cells = [row.split(" | ", 1) for row in rows.splitlines()]
    return {name: said for names, said in cells for name in names.removeprefix("| ").split(", ")}
