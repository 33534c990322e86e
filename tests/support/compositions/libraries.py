"""A schema compiled by our whole path for each library alone, and texts walked through a rank's matchers."""

import hashlib
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from guided_contract import wire
from guided_contract.backends import NAMES
from guided_contract.config import PodConfig
from guided_contract.wire import Backend
from guided_engine.ranks.loaded_grammars import LoadedGrammars
from guided_grammar.backend import Threads
from guided_grammar.matching import MatcherError
from guided_grammar.registry import Backends
from guided_sidecar.grammar.compile import vocabulary
from guided_sidecar.grammar.compile.compilation import Compiler
from guided_sidecar.grammar.worker_messages import Job

if TYPE_CHECKING:
    from collections.abc import Sequence

LIBRARIES: Final[list[Backend]] = list(NAMES.values())
_STEPS: Final = 90
_HURRY: Final = 40  # from here on, nearly only what closes a value


class Vocabulary:
    """One model's tokens, and how likely a walk takes each: in several ways, so that no text is too rare."""

    def __init__(self, model: Path) -> None:
        from transformers import AutoTokenizer

        pod = PodConfig(name="s", model=str(model), tokenizer=str(model), served_name="s", run_dir="/")
        self.vocabulary = vocabulary.load(pod)
        self._tokenizer: Any = AutoTokenizer.from_pretrained(model)
        self.eos: int = self._tokenizer.eos_token_id
        self.texts: Sequence[bytes] = self.vocabulary.tokens
        width = len(self.texts)
        closes = np.array([text[:1] in b'"}],:' and text != b"" for text in self.texts])
        single = np.array([len(text) == 1 for text in self.texts])
        blank = np.array([not text.strip() for text in self.texts])
        # Of 0xff there is none: it marks special tokens, and no text has it.
        self._single = {text[0]: number for number, text in enumerate(self.texts) if len(text) == 1}
        escapes = np.array([text[:1] == b"\\" or text in {b"u", b"0", b"6", b"1"} for text in self.texts])
        digits = np.array([bool(text) and set(text) <= set(b"0123456789.-+eE") for text in self.texts])
        calm = np.where(closes, 12.0, np.where(blank, 0.3, np.where(single, 6.0, 1.0)))
        self.weights = [
            calm,
            np.ones(width),
            calm + 300.0 * escapes,
            calm + 60.0 * digits,
            calm + 20.0 * blank,
        ]
        self.hurry = np.where(closes, 20.0, np.where(single & ~blank, 2.0, 0.1))
        for weights in (*self.weights, self.hurry):
            weights[self.eos] = 400

    def tokens(self, text: str, *, apart: bool = False) -> list[int]:
        """Return a text's tokens, or its bytes' tokens, without the end of sequence."""
        if apart:
            return [self._single[byte] for byte in text.encode()]
        return list(self._tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))


class Grammar:
    """A schema as one library has it on a rank."""

    def __init__(self, words: Vocabulary, ranks: LoadedGrammars, key: str, backend: Backend) -> None:
        self.backend: Backend = backend
        self._words = words
        self._ranks = ranks
        self._key = key

    def accepts(self, text: str, *, apart: bool = False) -> bool:
        """Return whether a text may be generated, from its first token to its end."""
        matcher = self._matcher()
        tokens = [*self._words.tokens(text, apart=apart), self._words.eos]
        return matcher.accept(tokens) and matcher.is_terminated()

    def walked(self, chance: random.Random, start: str = "") -> str | None:
        """Return a random text that begins as `start` does as far as that goes; None: it did not end.

        Raises
        ------
        DeadEndError
            No token may follow.
        """
        matcher = self._matcher()
        text = b""
        for token in self._words.tokens(start):
            if not matcher.valid_prefix([token]):
                break
            matcher.accept([token])
            text += self._words.texts[token]
        weights = chance.choice(self._words.weights)
        row = np.empty((1, (len(self._words.texts) + 31) // 32), dtype=np.int32)
        for step in range(_STEPS):
            row.fill(-1)
            try:
                matcher.fill(row, 0)
            except MatcherError as error:
                raise DeadEndError(text.decode(errors="replace")) from error
            bits = np.unpackbits(row[0].view(np.uint8), bitorder="little")[: len(weights)]
            chances = np.cumsum(bits * (self._words.hurry if step > _HURRY else weights))
            if not chances[-1]:
                raise DeadEndError(text.decode(errors="replace"))
            token = int(np.searchsorted(chances, chance.random() * chances[-1], side="right"))
            assert matcher.accept([token]), f"{token} is in the mask and may not follow {text!r}"
            if token == self._words.eos:
                try:
                    return text.decode()
                except UnicodeDecodeError:
                    return None
            text += self._words.texts[token]
        return None

    def _matcher(self) -> Any:
        return self._ranks.matcher(self._key, [self._words.eos])


class DeadEndError(Exception):
    """No token may follow a text."""


class Compilers:
    """Our path from a schema to what a rank has."""

    def __init__(self, model: Path) -> None:
        self.words = Vocabulary(model)
        known = Backends(self.words.vocabulary, Threads(compile=1))
        self._compiler = Compiler(known, self.words.vocabulary)
        self._ranks = LoadedGrammars(known)

    def compiled(self, schema: Any, backend: Backend) -> Grammar:
        """Compile a schema as if there were one library, without a proof, and load it.

        Raises
        ------
        guided_contract.errors.GuidedError
            It is refused.
        """
        spec = json.dumps(schema)
        key = hashlib.sha256(f"{backend}{spec}".encode()).hexdigest()
        done = self._compiler.run(
            Job(
                key=key,
                kind="json",
                spec=spec,
                backends=[backend],
                is_proven=False,
                timeout_s=60,
                memory_bytes=1 << 40,
            )
        )
        loaded = self._ranks.load(
            wire.Load(
                key=key,
                backend=backend,
                spec=done.spec,
                positions=done.positions,
            )
        )
        assert not loaded.error, loaded.error
        return Grammar(self.words, self._ranks, key, backend)
