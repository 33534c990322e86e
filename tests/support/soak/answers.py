"""Judges answers by what shares no code with the product: the grammar libraries, `re`, jsonschema."""

import functools
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import jsonschema
import llguidance
import llguidance.hf
import llguidance.numpy
import numpy as np
import numpy.typing as npt
import xgrammar
from transformers import AutoConfig, AutoTokenizer

from support.soak.requests import Request
from support.soak.traffic import Choice

Backend = Literal["xgrammar", "guidance"]
BACKENDS: tuple[Backend, ...] = ("xgrammar", "guidance")
_SECTION = re.compile(r"<f>(.*?)</f>", re.DOTALL)
# Longer bounds take xgrammar seconds to minutes; it then judges without them, and jsonschema with them.
_COMPILED_LENGTH = 16
# jsonschema's own checks of the others ask for packages, know another standard (time), or count the days of
# each month, which no grammar does (date).
_FORMATS = jsonschema.FormatChecker(["email", "ipv4", "ipv6", "uuid"])
_NO_CHARACTER = "\ufffd"


class Matcher(Protocol):
    """A fresh matcher of either library."""

    def accept(self, token: int) -> bool: ...

    def has_ended(self) -> bool: ...

    def mask(self) -> npt.NDArray[np.uint8]:
        """Return which tokens may follow  # [vocabulary] 0 or 1."""


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

    def fault(self, request: Request, choice: Choice, backend: Backend | None) -> str | None:
        """Return what is wrong with a choice, None where nothing is; `backend` None: either may accept it."""
        if not choice.tokens:
            return "no token at all"
        if request.kind == "none":
            return None
        refusals = [self._refusal(request, choice, one) for one in ([backend] if backend else BACKENDS)]
        if None not in refusals:
            return "; ".join(map(str, refusals))
        # xgrammar's classes take surrogates, which are no UTF-8: what the text has for them says nothing.
        is_text = choice.is_whole and _NO_CHARACTER not in choice.text
        return wrong_text(request, choice.text) if is_text else None

    def _refusal(self, request: Request, choice: Choice, backend: Backend) -> str | None:
        try:
            matcher = self.matcher(request, backend)
        except (AssertionError, RuntimeError, ValueError) as error:
            # Of a schema that it does not take as it is written, jsonschema alone judges what came out.
            return None if request.kind in {"json", "structural_tag"} else f"{backend} refuses: {error}"
        for position, token in enumerate(choice.tokens):
            if matcher.has_ended():
                return f"{backend} had ended before token {position}"
            if not matcher.accept(token):
                return f"{backend} refuses token {position}, {token}, of {choice.text!r}"
        if choice.is_whole and not matcher.has_ended():
            return f"{backend}: {choice.text!r} has ended, the grammar has not"
        return None

    def matcher(self, request: Request, backend: Backend) -> Matcher:
        """Return a new matcher at the start of a request's grammar."""
        if backend == "xgrammar":
            return _XGrammar(xgrammar.GrammarMatcher(self._xgrammar(request.kind, request.spec)), self._width)
        return _Guidance(self._guidance(request.kind, request.spec).deep_copy(), self._eos, self._width)

    def tokens(self, text: str) -> list[int]:
        """Return a text's tokens."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def allowed(self, request: Request, backend: Backend, tokens: Sequence[int]) -> list[int]:
        """Return every token that may follow `tokens`."""
        matcher = self.matcher(request, backend)
        assert all(map(matcher.accept, tokens))
        return [int(token) for token in np.flatnonzero(matcher.mask())]

    def _compile_xgrammar(self, kind: str, spec: str) -> Any:
        match kind:
            case "json":
                return self._compiler.compile_json_schema(json.dumps(without_lengths(json.loads(spec))))
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
        tag = json.loads(spec)
        items = [
            xgrammar.StructuralTagItem(begin=s["begin"], schema=json.dumps(s["schema"]), end=s["end"])
            for s in tag["structures"]
        ]
        return self._compiler.compile_structural_tag(items, tag["triggers"])

    def _compile_guidance(self, kind: str, spec: str) -> Any:
        flexible = {"whitespace_flexible": True}
        from_schema = functools.partial(llguidance.LLMatcher.grammar_from_json_schema, defaults=flexible)
        match kind:
            case "json":
                text = from_schema(spec)
            case "json_object":
                text = from_schema('{"type": "object"}')
            case "structural_tag":
                tag = json.loads(spec)
                text = llguidance.StructTag.to_grammar(
                    [
                        llguidance.StructTag(
                            trigger=tag["triggers"][0],
                            begin=s["begin"],
                            grammar=from_schema(s["schema"]),
                            end=s["end"],
                        )
                        for s in tag["structures"]
                    ]
                )
            case _:
                text = llguidance.grammar_from(kind, spec)
        matcher = llguidance.LLMatcher(self._tokens, text, log_level=0)
        assert not matcher.is_error(), matcher.get_error()
        return matcher


class _XGrammar:
    def __init__(self, matcher: Any, width: int) -> None:
        self._matcher = matcher
        self._width = width

    def accept(self, token: int) -> bool:
        return bool(self._matcher.accept_token(token))

    def mask(self) -> npt.NDArray[np.uint8]:
        words = xgrammar.allocate_token_bitmask(1, self._width)
        self._matcher.fill_next_token_bitmask(words, 0)
        return _bits(words.numpy(), self._width)

    def has_ended(self) -> bool:
        return bool(self._matcher.is_terminated())


class _Guidance:
    """It ends at the end of sequence, allowed where the text may end, also where nothing else may follow."""

    def __init__(self, matcher: Any, eos: int, width: int) -> None:
        self._matcher = matcher
        self._width = width
        self._eos = eos
        self._ended = False

    def accept(self, token: int) -> bool:
        if token != self._eos:
            return bool(self._matcher.consume_token(token))
        self._ended = bool(self._matcher.is_accepting())
        return self._ended

    def mask(self) -> npt.NDArray[np.uint8]:
        words = np.zeros((1, (self._width + 31) // 32), dtype=np.int32)
        llguidance.numpy.fill_next_token_bitmask(self._matcher, words, 0)
        return _bits(words, self._width)

    def has_ended(self) -> bool:
        return self._ended


def _bits(words: npt.NDArray[np.int32], width: int) -> npt.NDArray[np.uint8]:
    return np.unpackbits(words.view(np.uint8), bitorder="little")[:width]


def without_lengths(schema: Any) -> Any:
    """Return a schema without its strings' longer bounds."""
    if isinstance(schema, list):
        return [without_lengths(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: without_lengths(part)
        for key, part in schema.items()
        if not (key in {"minLength", "maxLength"} and isinstance(part, int) and part > _COMPILED_LENGTH)
    }


def wrong_text(request: Request, text: str) -> str | None:
    """Return why a whole answer's text is not what the constraint asks for."""
    try:
        match request.kind:
            case "json":
                _validate(text, request.constraint)
            case "json_object":
                _validate(text, {"type": "object"})
            case "choice":
                _require(text in request.constraint)
            case "structural_tag":
                schema = json.loads(request.constraint)["structures"][0]["schema"]
                for section in _SECTION.findall(text):
                    _validate(section, schema)
            case _:
                assert request.regex is not None
                _require(re.fullmatch(request.regex, text))
    except (ValueError, jsonschema.ValidationError) as error:
        return f"{text!r} is no valid {request.kind}: {getattr(error, 'message', error)}"
    return None


def _validate(text: str, schema: Any) -> None:
    checker = jsonschema.Draft202012Validator(schema, format_checker=_FORMATS)
    error = next(checker.iter_errors(json.loads(text)), None)
    if error is not None:
        raise error


def _require(holds: object) -> None:
    if not holds:
        raise ValueError("it does not match")
