"""Closing: when it begins, and what it likes best where in JSON."""

import pytest

from guided_engine.processors.closing import Closing
from guided_engine.processors.interface import Context
from guided_engine.processors.registry import FactoryError
from guided_engine.testing import Harness
from support import processor_rules

EOS = 0
TOKENS = [
    *(b"", b'"', b"{", b"}", b"]", b'"}', b"}}", b"a", b"[", b'""', b",", b":", b" ", b"\n", b"\\", b' "'),
    *(b"()", b'a"', b"{}", b'",', b")", b"1", b"true", "é".encode()),
]
CONTEXT = Context(vocab_size=len(TOKENS), token_bytes=TOKENS, stop_tokens=frozenset({EOS}))


def harness(within: int = 3) -> Harness:
    return Harness(Closing, {"within": within}, CONTEXT)


def best(text: bytes, allowed: bytes = b"", *, max_tokens: int = 100) -> list[bytes]:
    """Return what is liked best behind a text, of all tokens but stop tokens or of some."""
    sequence = harness(100).sequence(max_tokens=max_tokens)
    for byte in text:
        sequence.accept(TOKENS.index(bytes([byte])))
    [row] = sequence.rows()
    among = [token for token, one in enumerate(TOKENS) if one and (not allowed or one in allowed.split())]
    return [TOKENS[token] for token in among if row[token] == row[among].max()]


def test_it_begins_within_so_many_tokens_of_the_last_drafts_counted() -> None:
    sequence = harness(3).sequence(max_tokens=6)
    sequence.accept(7)
    # Of six tokens the fourth to the sixth; the first has come.
    assert [bool(row.any()) for row in sequence.rows(drafts=[7, 7, 7])] == [False, False, True, True]
    sequence.accept(7, 7)
    assert sequence.rows()[0].argmax() == EOS


def test_without_the_text_of_tokens_the_engine_does_not_start() -> None:
    with pytest.raises(FactoryError, match="text of the model's tokens is unknown"):
        Harness(Closing)


@pytest.mark.parametrize(
    ("text", "allowed", "liked"),
    [
        (b'{"a', b'" } } } }} a', b'"'),  # a bracket in a string closes nothing
        (b'{"a', b'" "} } a', b'"}'),
        (b'{"a\\"', b'" } a', b'"'),
        (b"{", b'" } a', b"}"),
        (b'{{"a"', b", } }}", b"}}"),
        (b'{"":', b'" "" { 1', b'""'),
        (b'{"":1', b"1 ,", b","),
        (b'{"a"', b": \n", b":"),
        (b'{"":1,', b'" \n', b'"'),
    ],
)
def test_what_closes_most_is_liked_best(text: bytes, allowed: bytes, liked: bytes) -> None:
    assert best(text, allowed) == [liked]


@pytest.mark.parametrize(("seed", "within"), [(0, 1), (2, 20)])
def test_the_rules_of_factories_are_kept(seed: int, within: int) -> None:
    processor_rules.check(Closing, {"within": within}, CONTEXT, max_tokens=30, seed=seed)
