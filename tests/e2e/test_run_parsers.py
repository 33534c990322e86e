"""Pods with pairs of vLLM's parsers, of tools and of reasoning, each with its marks in vocabulary and prompt.

PARSERS=all (make test-parsers) alone: each pod takes minutes. PARSERS=glm45 is those with that parser.
"""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from devtools import deploy, tinymodel

from e2e.test_run_reasoning import ANSWERS, CALLS, CHAT, ask
from support.pod import Pod, start_pod

CHOSEN = os.environ.get("PARSERS", "")
pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not CHOSEN, reason="PARSERS=all (make test-parsers) runs it"),
]
MOODS = ({"mood": "good"}, {"mood": "bad"})
ONE = {"parallel_tool_calls": False}
NAMED = {"tool_choice": {"type": "function", "function": {"name": "tell"}}}
BAR = "\N{FULLWIDTH VERTICAL LINE}"
DEEPSEEK = ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep")
KIMI = ("calls_section_begin", "calls_section_end", "call_begin", "call_end", "call_argument_begin")


class Pair(NamedTuple):
    """Two parsers, the marks of their calls, and those that open and close thinking, if any do."""

    tools: str
    reasoning: str
    marks: tuple[str, ...] = ()
    thinks: tuple[str, ...] = ("<think>", "</think>")


PAIRS = (
    Pair("hermes", "qwen3"),
    Pair("qwen3_coder", "qwen3"),
    Pair("deepseek_v3", "deepseek_r1", tuple(f"<{BAR}tool▁{name}{BAR}>" for name in DEEPSEEK)),
    Pair("deepseek_v31", "deepseek_v3", tuple(f"<{BAR}tool▁{name}{BAR}>" for name in DEEPSEEK)),
    Pair("glm47", "glm45", ("<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")),
    Pair("kimi_k2", "kimi_k2", tuple(f"<|tool_{name}|>" for name in KIMI)),
    Pair("llama3_json", "granite", ("<|python_tag|>",), thinks=()),
    Pair("llama3_json", "qwen3", ("<|python_tag|>",)),
    Pair("mistral", "deepseek_r1", ("[TOOL_CALLS]", "[ARGS]")),
    Pair("pythonic", "seed_oss", thinks=("<seed:think>", "</seed:think>")),
    Pair("minimax_m2", "minimax_m2", ("<minimax:tool_call>", "</minimax:tool_call>")),
)


Served = tuple[Pod, Pair]


def is_chosen(pair: Pair) -> bool:
    return CHOSEN in {"", "all"} or not {pair.tools, pair.reasoning}.isdisjoint(CHOSEN.split(","))


def write_model(folder: Path, pair: Pair) -> None:
    """Copy `tiny`; a pair's marks take the place of its own and of the last words of its vocabulary."""
    shutil.copytree(tinymodel.thinking() / "tiny", folder / "tiny")
    file = folder / "tiny/tokenizer.json"
    tokenizer = json.loads(file.read_text())
    template = tinymodel.CHAT_TEMPLATE + (tinymodel.THINKING if pair.thinks else "")
    added, words = tokenizer["added_tokens"], tokenizer["model"]["vocab"]
    for own, mark in zip(tinymodel.MARKS, pair.thinks, strict=False):
        template = template.replace(own, mark)
        next(token for token in added if token["content"] == own)["content"] = mark
    gone = sorted(words, key=words.get)[len(words) - len(pair.marks) :]
    for word, mark in zip(gone, pair.marks, strict=True):
        added.append(added[-1] | {"id": words.pop(word), "content": mark})
    added.sort(key=lambda token: token["id"])
    merges = tokenizer["model"]["merges"]
    tokenizer["model"]["merges"] = [merge for merge in merges if "".join(merge) not in gone]
    file.write_text(json.dumps(tokenizer))
    (folder / "tiny/chat_template.jinja").write_text(template)


@pytest.fixture(scope="module", params=filter(is_chosen, PAIRS), ids=lambda pair: "/".join(pair[:2]))
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    pair: Pair = request.param
    folder = tmp_path_factory.mktemp("models")
    write_model(folder, pair)
    manifest = deploy.sample()
    manifest["spec"]["parallelism"]["tensor"] = 1
    chosen = {"--tool-call-parser=hermes": pair.tools, "--reasoning-parser=qwen3": pair.reasoning}
    args = manifest["spec"]["engine"]["args"]
    for word, parser in chosen.items():
        args[args.index(word)] = f"{word.partition('=')[0]}={parser}"
    pod = start_pod(manifest, models=folder)
    yield pod, pair
    pod.stop()


def thinking(on: bool) -> dict[str, Any]:  # noqa: FBT001 - a case
    return {"chat_template_kwargs": {"enable_thinking": on, "thinking": on}}


def biased(pair: Pair) -> dict[str, Any]:
    """Return a bias to end thinking, and to a mark's own token, as of a model that has learnt it."""
    opens = tinymodel.VOCAB - len(tinymodel.MARKS)
    tokens = {*range(opens - len(pair.marks), tinymodel.VOCAB)} - {opens}
    return {"logit_bias": {str(token): 100 if token == opens + 1 else 50 for token in tokens}}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("on", [False, True], ids=["off", "on"])
def test_a_chat_is_guided(served: Served, on: bool, stream: bool) -> None:  # noqa: FBT001 - a case
    pod, pair = served
    told = ask(pod, CHAT, stream, ANSWERS[CHAT], thinking(on))
    assert (json.loads(told.said or "null") in MOODS, told.end) == (True, "stop"), vars(told)
    assert bool(told.thought) == (on and bool(pair.thinks))


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("on", [False, True], ids=["off", "on"])
@pytest.mark.parametrize("forced", [ONE, NAMED], ids=["required", "named"])
def test_a_forced_call_is_read_back(served: Served, forced: Any, on: bool, stream: bool) -> None:  # noqa: FBT001 - a case
    pod, pair = served
    told = ask(pod, CHAT, stream, CALLS[CHAT], forced, thinking(on), biased(pair))
    ends = "stop" if forced is NAMED else "tool_calls"
    assert (json.loads(told.arguments or "null") in MOODS, told.end) == (True, ends), vars(told)
