"""A rank in memory: one factory, any number of sequences, and what a rank does to them."""

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as ListOf
from typing import Any

import numpy as np
import numpy.typing as npt

from guided_contract.config import LogitsProcessorConfig
from guided_engine.processors import edits, registry
from guided_engine.processors.adapters import factory_of
from guided_engine.processors.edits import EditsError, NoTokenError
from guided_engine.processors.interface import Context, SequenceInfo, SequenceProcessor
from guided_engine.processors.sequence import Dense, SequenceProcessors

Logits = npt.NDArray[np.float32]  # [rows, vocabulary]
Factory = type[Any] | Callable[..., Any] | str


class Sequence:
    """One sequence of a Harness; made by `Harness.sequence`.

    Attributes
    ----------
    tokens
        What it has generated.
    """

    def __init__(self, processors: SequenceProcessors, vocab_size: int) -> None:
        self._processors = processors
        self._vocab_size = vocab_size
        self.tokens: list[int] = []
        processors.start()

    @property
    def supports_speculation(self) -> bool:
        """Return whether it may be given drafts."""
        return self._processors.support_speculation

    @property
    def processors(self) -> list[SequenceProcessor]:
        """Return its processors."""
        return self._processors.processors

    def rows(self, logits: Logits | None = None, drafts: ListOf[int] = ()) -> Logits:
        """Return what becomes of the logits of one step with drafts (ids); the sequence does not move.

        `logits` are [1 + drafts, vocabulary] float32, left as they are; None: zeros. Raises ProcessorError if
        a processor raised or gave what cannot be applied, EditsError if `apply` of a DenseFactory left NaN or
        +inf, NoTokenError if a row has no token left.
        """
        shape = 1 + len(drafts), self._vocab_size
        changed = np.zeros(shape, np.float32) if logits is None else np.array(logits, np.float32)
        prepared = self._processors.prepare(drafts)
        for row, change in zip(changed, prepared.rows, strict=True):
            if change is not None and not edits.apply(change, row):
                raise NoTokenError
        for each in prepared.dense:
            _apply_dense(each, changed)
        return changed

    def accept(self, *tokens: int) -> None:
        """Advance by tokens that are now part of the sequence."""
        self.tokens.extend(tokens)
        self._processors.accept(tokens)

    def preempt(self, lost: int = 0) -> None:
        """Have a new processor made, and given what was generated but for the last `lost` tokens."""
        self.tokens = self.tokens[: len(self.tokens) - lost]
        self._processors.start()
        if self.tokens:
            self._processors.accept(self.tokens)

    def release(self) -> None:
        """End it: finished and aborted are the same to a processor."""
        self._processors.release()


class Harness:
    """One rank with one factory.

    `factory` is what the resource names, or its name, "package.module:Class"; `params` are as the resource
    writes them; without a `context` the rank has `vocab_size` tokens without text. Raises FactoryError if the
    factory cannot be found or made or refuses its parameters, UnsuitableError if it is none.
    """

    def __init__(
        self,
        factory: Factory,
        params: Mapping[str, Any] | None = None,
        context: Context | None = None,
        *,
        vocab_size: int = 128,
    ) -> None:
        self._context = context or Context(vocab_size=vocab_size, token_bytes=(b"",) * vocab_size)
        self.vocab_size = self._context.vocab_size
        config = LogitsProcessorConfig(
            name="tested",
            factory=factory if isinstance(factory, str) else getattr(factory, "__qualname__", "tested"),
            params=dict(params or {}),
        )
        find = registry.find if isinstance(factory, str) else lambda _config: factory_of(factory)
        self._registry = registry.Registry([config], self._context, find)
        self._made = 0

    def sequence(  # noqa: PLR0913 - what a request says, by name
        self,
        prompt: ListOf[int] = (),
        *,
        stop_tokens: frozenset[int] | None = None,
        max_tokens: int | None = None,
        params: Mapping[str, Any] | None = None,
        request_id: str | None = None,
        sampling_params: Any = None,
    ) -> Sequence:
        """Return a new sequence; `params` are what its request sets.

        Raises
        ------
        guided_engine.processors.registry.ProcessorError
            The factory raised, or a request may not set what is set.
        """
        self._made += 1
        info = SequenceInfo[Any](
            request_id=f"request-{self._made}" if request_id is None else request_id,
            prompt_tokens=prompt,
            stop_tokens=self._context.stop_tokens if stop_tokens is None else stop_tokens,
            max_tokens=max_tokens,
            sampling_params=sampling_params,
        )
        arguments = {f"tested.{key}": value for key, value in (params or {}).items()}

        def make() -> Iterator[registry.Running]:
            return self._registry.create(arguments, info)

        return Sequence(SequenceProcessors(make, self.vocab_size), self.vocab_size)

    def close(self) -> None:
        """Close the factory."""
        self._registry.close()


def _apply_dense(given: Dense, changed: Logits) -> None:
    import torch  # noqa: PLC0415 - authors of sparse processors need none

    from guided_engine.processors import dense  # noqa: PLC0415 - likewise

    rows = [row for row, result in enumerate(given.rows) if result is not None]
    if not rows:
        return
    results = [given.rows[row] for row in rows]
    codes = dense.apply(given.factory, results, torch.from_numpy(changed), torch.tensor(rows)).tolist()
    if dense.IS_WRONG in codes:
        raise EditsError("apply left NaN or +inf")
    if dense.IS_EMPTY in codes:
        raise NoTokenError
