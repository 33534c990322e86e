"""Judges answers by what shares no code with the product: the grammar libraries, `re`, jsonschema."""

import functools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import llguidance
import llguidance.hf
import llguidance.numpy
import numpy as np
import xgrammar
from transformers import AutoConfig, AutoTokenizer

from support.compositions import judge
from support.soak.requests import BACKENDS, PART, Backend, Request
from support.soak.traffic import Choice

_NO_CHARACTER = "\ufffd"


class Judge:
    """Fresh matchers for one model's tokenizer, a compiled grammar for each constraint kept for a while."""

    def __init__(self, model: Path) -> None:
        self.tokenizer = tokenizer = AutoTokenizer.from_pretrained(model)
        self._eos: int = tokenizer.eos_token_id
        self._width = width = int(AutoConfig.from_pretrained(model).vocab_size)
        self._tokens = llguidance.hf.from_tokenizer(tokenizer, width)
        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=width)
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=2)
        self._xgrammar = functools.lru_cache(256)(self._compile_xgrammar)
        self._guidance = functools.lru_cache(256)(self._compile_guidance)

    def fault(self, request: Request, choice: Choice) -> str | None:
        """Return what is wrong with a choice, None where nothing is, by the library asked for, or either."""
        if not choice.tokens:
            return "no token at all"
        if request.kind == "none":
            return None
        refusals = [self._refusal(request, choice, one) for one in BACKENDS if request.backend in {one, None}]
        if None not in refusals:
            return "; ".join(map(str, refusals))
        # xgrammar's classes take surrogates, which are no UTF-8: what the text has for them says nothing.
        is_text = choice.is_whole and _NO_CHARACTER not in choice.text
        return wrong_text(request, choice.text) if is_text else None

    def _refusal(self, request: Request, choice: Choice, backend: Backend) -> str | None:
        try:
            matcher = self._matcher(request, backend)
        except (AssertionError, RuntimeError, ValueError) as error:
            # Of a schema that it does not take as it is written, jsonschema alone judges what came out.
            return None if request.kind in {"json", "structural_tag"} else f"{backend} refuses: {error}"
        for position, token in enumerate(choice.tokens):
            if matcher.is_terminated():
                return f"{backend} had ended before token {position}"
            if not matcher.accept_token(token):
                return f"{backend} refuses token {position}, {token}, of {choice.text!r}"
        if choice.is_whole and not matcher.is_terminated():
            return f"{backend}: {choice.text!r} has ended, the grammar has not"
        return None

    def _matcher(self, request: Request, backend: Backend) -> Any:
        if backend == "xgrammar":
            return xgrammar.GrammarMatcher(self._xgrammar(request.kind, request.spec))
        return _Guidance(self._guidance(request.kind, request.spec).deep_copy(), self._eos)

    def tokens(self, text: str) -> list[int]:
        """Return a text's tokens."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def allowed(self, request: Request, tokens: Sequence[int]) -> list[int]:
        """Return every token that may follow `tokens`, as llguidance has it."""
        matcher = self._guidance(request.kind, request.spec).deep_copy()
        assert matcher.consume_tokens(list(tokens))
        words = np.zeros((1, (self._width + 31) // 32), dtype=np.int32)
        llguidance.numpy.fill_next_token_bitmask(matcher, words, 0)
        return np.flatnonzero(np.unpackbits(words.view(np.uint8), bitorder="little")).tolist()

    def _compile_xgrammar(self, kind: str, spec: str) -> Any:
        match kind:
            case "json":
                return self._compiler.compile_json_schema(spec)
            case "json_object":
                return self._compiler.compile_json_schema('{"type": "object"}')
            case "regex":
                return self._compiler.compile_regex(spec)
            case "choice":
                options = (json.dumps(option, ensure_ascii=False) for option in json.loads(spec))
                return self._compiler.compile_grammar(f"root ::= {' | '.join(options)}")
            case "grammar":
                is_lark = spec.startswith("start:")
                return (self._compiler.compile_lark if is_lark else self._compiler.compile_grammar)(spec)
        raise ValueError(kind)

    def _compile_guidance(self, kind: str, spec: str) -> Any:
        flexible = {"whitespace_flexible": True}
        from_schema = functools.partial(llguidance.LLMatcher.grammar_from_json_schema, defaults=flexible)
        match kind:
            case "json":
                text = from_schema(spec)
            case "json_object":
                text = from_schema('{"type": "object"}')
            case _:
                text = llguidance.grammar_from(kind, spec)
        matcher = llguidance.LLMatcher(self._tokens, text, log_level=0)
        assert not matcher.is_error(), matcher.get_error()
        return matcher


class _Guidance:
    """Asked as xgrammar's is: it ends at the end of sequence, which is allowed where the text may end."""

    def __init__(self, matcher: Any, eos: int) -> None:
        self._matcher = matcher
        self._eos = eos
        self._ended = False

    def accept_token(self, token: int) -> bool:
        if token != self._eos:
            return bool(self._matcher.consume_token(token))
        self._ended = bool(self._matcher.is_accepting())
        return self._ended

    def is_terminated(self) -> bool:
        return self._ended


def wrong_text(request: Request, text: str) -> str | None:
    """Return why a whole answer's text is not what the constraint asks for."""
    match request.kind:
        case "json":
            return _invalid(text, request.constraint)
        case "json_object":
            return _invalid(text, {"type": "object"})
        case "choice":
            return None if text in request.constraint else f"{text!r} is no choice"
        case "structural_tag":
            sections = re.findall(r"<f>(.*?)</f>", text, re.DOTALL)
            return next(filter(None, (_invalid(each, PART) for each in sections)), None)
    assert request.regex is not None
    return None if re.fullmatch(request.regex, text) else f"{text!r} does not match {request.regex!r}"


def _invalid(text: str, schema: Any) -> str | None:
    try:
        fault = judge.Judge(schema).fault(text)
    except judge.UnknownError:
        return None
    return fault and f"{text!r}: {fault}"
