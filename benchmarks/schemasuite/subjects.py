"""Who is asked to take a schema: the sidecar with its ranks, and each library as vLLM would use it."""

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from guided_contract.config import PodConfig
from guided_contract.errors import GuidedError
from guided_engine.matchers.loaded_grammars import LoadedGrammars
from guided_grammar.backend import Backend, BackendError, Threads
from guided_grammar.matching import Matcher
from guided_grammar.registry import Backends
from guided_sidecar.grammar.compile import vocabulary
from guided_sidecar.grammar.compile.compiler import Compiler
from guided_sidecar.grammar.prepare.jobs import load_of
from guided_sidecar.grammar.worker_messages import Done, Job

Accepts = Callable[[str], bool]  # whether a JSON text may be generated, from its first token to its end
_THREADS: Final = 2
_TIMEOUT_S: Final = 60.0


class RefusedError(Exception):
    """A schema is not taken; the message says why."""


class Subject(Protocol):
    """Takes schemas."""

    name: str

    def take(self, schema: Any) -> Accepts:
        """Compile a schema.

        Raises
        ------
        RefusedError
            It is not taken.
        """


class Words:
    """One model's tokenizer as sidecar and ranks hold it."""

    def __init__(self, model: Path) -> None:
        from transformers import AutoTokenizer  # noqa: PLC0415 - heavy

        self.pod = PodConfig(name="s", model=str(model), tokenizer=str(model), served_name="s", run_dir="/")
        self.vocabulary = vocabulary.load(self.pod)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(model)
        self.eos: int = self.tokenizer.eos_token_id

    def tokens(self, text: str) -> list[int]:
        """Return a text's tokens, and the end of sequence."""
        return [*self.tokenizer.encode(text, add_special_tokens=False), self.eos]


class Library:
    """One library alone, asked as vLLM 0.32 asks it."""

    def __init__(self, name: str, backend: Backend, words: Words) -> None:
        self.name = name
        self._backend = backend
        self._words = words

    def take(self, schema: Any) -> Accepts:
        """Compile a schema."""
        try:
            compiled = self._backend.compile("json", json.dumps(schema))
        except BackendError as error:
            raise RefusedError(str(error)) from error

        def accepts(text: str) -> bool:
            matcher = compiled.matcher()
            return matcher.accept(self._words.tokens(text)) and matcher.is_terminated()

        return accepts


class Ours:
    """The sidecar's compiler, and a rank that loads what it makes."""

    name = "ours"

    def __init__(self, words: Words, known: Backends) -> None:
        self._words = words
        self._compiler = Compiler(known, words.vocabulary)
        self._known = known
        self._ranks = LoadedGrammars(known)

    def take(self, schema: Any) -> Accepts:
        """Compile, prove and load a schema."""
        matcher = self.matchers(schema)

        def accepts(text: str) -> bool:
            tokens, started = self._words.tokens(text), matcher()
            return started.accept(tokens) and started.is_terminated()

        return accepts

    def matchers(self, schema: Any) -> Callable[[], Matcher]:
        """Compile, prove and load a schema; return what makes a sequence's matcher, as a rank does.

        Raises
        ------
        RefusedError
            It is not taken; the cause is a GuidedError where the sidecar refused it.
        """
        try:
            key, done = self.compiled(schema)
        except GuidedError as error:
            raise RefusedError(str(error)) from error
        loaded = self._ranks.load(load_of(key, done))
        if loaded.error:
            raise RefusedError(loaded.error)
        return lambda: self._ranks.matcher(key, [self._words.eos])

    def compiled(self, schema: Any) -> tuple[str, Done]:
        """Compile and prove a schema; return its key, and what ranks are to load.

        Raises
        ------
        GuidedError
            It is refused.
        """
        spec = json.dumps(schema)
        key = hashlib.sha256(spec.encode()).hexdigest()
        return key, self._compiler.run(self._job(key, spec))

    def _job(self, key: str, spec: str) -> Job:
        return Job(
            key=key,
            kind="json",
            spec=spec,
            backends=list(self._known),
            timeout_s=_TIMEOUT_S,
            memory_bytes=1 << 40,
        )


def subjects(model: Path) -> Sequence[Subject]:
    """Return us and the two libraries."""
    words = Words(model)
    known = Backends(words.vocabulary, Threads(compile=_THREADS))
    return [Ours(words, known), *(Library(name, known[name], words) for name in known)]
