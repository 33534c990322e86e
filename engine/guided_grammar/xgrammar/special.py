r"""Special tokens, as `<|im_end|>`: to xgrammar they are text, to whoever reads the answer they are nothing.

Inside a string, or wherever else a grammar allows any text, such a token would be sampled and then be missing
from the answer, which may no longer match. So each is given bytes that begin with MARK, which is no UTF-8: no
text holds them. A structural tag that names one means the token itself; there it is written as those bytes,
or as its number.
"""

import json
import re
from typing import Any, Final

import xgrammar

from guided_grammar import texts

MARK: Final = b"\xff"
# Stands for MARK in a tag's text, which is UTF-8, until the grammar has its strings as bytes.
_STAND_IN: Final = "\x1d"
_TEXTS: Final = frozenset(["begin", "end", "value", "triggers", "separator"])  # of a structural tag
_TOKENS: Final = frozenset(["token", "trigger_tokens", "exclude_tokens"])  # by number or by name
_OPAQUE: Final = frozenset(["json_schema", "grammar", "pattern", "excludes"])
_BYTE_STRING: Final = 0  # the kind of an expression in a grammar's serialised form


def marked(info: Any, tokenizer: Any) -> Any:
    """Return an xgrammar.TokenizerInfo in which no special token is text.

    Parameters
    ----------
    info
        What xgrammar reads of the tokenizer.
    tokenizer
        transformers' own, or vLLM's class of it.
    """
    decoded = info.decoded_vocab
    special = {number: decoded[number] for number in tokenizer.all_special_ids if number < len(decoded)}
    for number, token in getattr(tokenizer, "added_tokens_decoder", {}).items():
        if getattr(token, "special", False) and number < len(decoded):
            special[number] = token.content.encode()  # xgrammar may have read it as bytes written as letters
    if not special:
        return info
    return xgrammar.TokenizerInfo(
        [
            MARK + special[number] if special.get(number) else b"" if MARK in text else text
            for number, text in enumerate(decoded)
        ],
        vocab_type=xgrammar.VocabType.RAW,  # they are decoded
        vocab_size=info.vocab_size,
        stop_token_ids=info.stop_token_ids,
        add_prefix_space=info.add_prefix_space,
    )


class SpecialTokens:
    """The special tokens of an xgrammar.TokenizerInfo that is `marked`."""

    def __init__(self, info: Any) -> None:
        self._numbers = {
            text[len(MARK) :].decode(errors="replace"): number
            for number, text in enumerate(info.decoded_vocab)
            if text.startswith(MARK)
        }
        self._named = texts.one_of(self._numbers)
        self._stand_ins = re.compile(f"{_STAND_IN}({self._named.pattern})".encode())

    def in_tag(self, tag: dict[str, Any]) -> Any | None:
        """Return the xgrammar.Grammar of a structural tag's new form; None: it names no special token."""
        meant = self._meant(tag, "")
        if meant == tag:
            return None
        form = json.loads(xgrammar.Grammar.from_structural_tag(json.dumps(meant)).serialize_json())
        data, starts = form["grammar_expr_data"], form["grammar_expr_indptr"]
        for start in starts:
            if start < len(data) and data[start] == _BYTE_STRING:
                begin, end = start + 2, start + 2 + data[start + 1]
                text = bytes(byte & 0xFF for byte in data[begin:end])
                data[begin:end] = self._stand_ins.sub(lambda found: MARK + found[1], text)
        return xgrammar.Grammar.deserialize_json(json.dumps(form))

    def _meant(self, value: Any, key: str) -> Any:
        """Return a part of a tag, found under `key`, in which special tokens are written as themselves."""
        if isinstance(value, str):
            if key in _TEXTS:
                return self._named.sub(lambda found: _STAND_IN + found[0], value)
            return self._numbers.get(value, value) if key in _TOKENS else value
        if isinstance(value, list):
            return [self._meant(part, key) for part in value]
        if not isinstance(value, dict):
            return value
        meant = {name: part if name in _OPAQUE else self._meant(part, name) for name, part in value.items()}
        kind = value.get("type")
        if kind == "triggered_tags":
            # Who spells a trigger out in other tokens has begun the tag, too: it is as it was written.
            for name in ("triggers", "tags"):
                meant[name] += [part for part in value[name] if part not in meant[name]]
        elif kind in {"dispatch", "token_dispatch"}:
            name = "value" if kind == "dispatch" else "token"
            meant["rules"] = [[self._meant(said, name), part] for said, part in meant["rules"]]
            if kind == "dispatch":
                meant["rules"] += [rule for rule in value["rules"] if rule not in meant["rules"]]
        return meant
