"""A rank in memory: one factory, any number of sequences, and what a rank does to them."""

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as ListOf
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from guided_contract.config import LogitsProcessorConfig
from guided_engine.processors import edits, registry
from guided_engine.processors.adapters import factory_of
from guided_engine.processors.edits import EditsError, NoTokenError
from guided_engine.processors.interface import (
    Context,
    DenseFactory,
    SequenceInfo,
    SequenceProcessor,
)
from guided_engine.processors.sequence import Prepared, SequenceProcessors

Logits = npt.NDArray[np.float32]  # [rows, vocabulary]
Factory = type[Any] | Callable[..., Any] | str


class Turn(NamedTuple):
    """What one sequence brings to a step: its rows of logits, one more than drafts, and the drafts."""

    sequence: "Sequence"
    logits: Logits
    drafts: ListOf[int] = ()


class Sequence:
    """One sequence of a Harness; made by `Harness.sequence`.

    Attributes
    ----------
    tokens
        What it has generated.
    """

    def __init__(self, harness: "Harness", processors: SequenceProcessors) -> None:
        self._harness = harness
        self._processors = processors
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
        """Return what becomes of the logits of one step; the sequence does not move.

        Parameters
        ----------
        logits
            [1 + drafts, vocabulary] float32, left as they are; None: zeros.
        drafts
            Token ids.
        """
        if logits is None:
            logits = np.zeros((1 + len(drafts), self._harness.vocab_size), np.float32)
        [changed] = self._harness.step([Turn(self, logits, drafts)])
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

    def prepared(self, drafts: ListOf[int]) -> Prepared:
        """Return what its processor gives for a step."""
        return self._processors.prepare(drafts)


class Harness:
    """One rank with one factory.

    Parameters
    ----------
    factory
        What the resource names, or its name, "package.module:Class".
    params
        As the resource writes them.
    context
        What the factory is told of the rank; without one a vocabulary of `vocab_size` tokens without text.
    vocab_size
        Columns of the logits.
    enforced
        Whether the resource enforces it, so that requests set no parameter.

    Raises
    ------
    guided_engine.processors.registry.FactoryError
        The factory cannot be found or made, or refuses the parameters.
    guided_engine.processors.adapters.UnsuitableError
        What is given is nothing of which there is a factory.
    """

    def __init__(
        self,
        factory: Factory,
        params: Mapping[str, Any] | None = None,
        context: Context | None = None,
        *,
        vocab_size: int = 128,
        enforced: bool = False,
    ) -> None:
        self._context = context or Context(vocab_size=vocab_size, token_bytes=(b"",) * vocab_size)
        self.vocab_size = self._context.vocab_size
        config = LogitsProcessorConfig(
            name="tested",
            factory=factory if isinstance(factory, str) else getattr(factory, "__qualname__", "tested"),
            params=dict(params or {}),
            enforced=enforced,
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
        is_greedy: bool = False,
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
            return self._registry.create(arguments, info, is_greedy=is_greedy)

        return Sequence(self, SequenceProcessors(make, self.vocab_size))

    def step(self, turns: ListOf[Turn], *, on_meta: bool = False) -> list[Logits]:
        """Return what becomes of the logits of several sequences in one step; none of them moves.

        Parameters
        ----------
        turns
            Each sequence once.
        on_meta
            Give a DenseFactory tensors without content, on torch's meta device; nothing is changed then.

        Raises
        ------
        guided_engine.processors.registry.ProcessorError
            A processor raised, or gave what cannot be applied.
        guided_engine.processors.edits.EditsError
            `apply` of a DenseFactory left NaN or +inf.
        guided_engine.processors.edits.NoTokenError
            A row has no token left.
        """
        changed = [np.array(turn.logits, np.float32) for turn in turns]
        given = [turn.sequence.prepared(turn.drafts) for turn in turns]
        for rows, prepared in zip(changed, given, strict=True):
            for row, change in zip(rows, prepared.rows, strict=True):
                if change is not None and not edits.apply(change, row):
                    raise NoTokenError
        self._apply_dense(changed, given, on_meta=on_meta)
        return changed

    def _apply_dense(self, changed: ListOf[Logits], given: ListOf[Prepared], *, on_meta: bool) -> None:
        calls: dict[int, tuple[DenseFactory[Any], list[Logits], list[Any]]] = {}
        for rows, prepared in zip(changed, given, strict=True):
            for factory, results in prepared.dense:
                _, own, wanted = calls.setdefault(id(factory), (factory, [], []))
                for row, result in zip(rows, results, strict=True):
                    if result is not None:
                        own.append(row)
                        wanted.append(result)
        for factory, own, wanted in calls.values():
            if own:
                self._apply_one(factory, own, wanted, on_meta=on_meta)

    def _apply_one(
        self, factory: DenseFactory[Any], rows: ListOf[Logits], results: ListOf[Any], *, on_meta: bool
    ) -> None:
        import torch  # noqa: PLC0415 - authors of sparse processors need none

        from guided_engine.processors import dense  # noqa: PLC0415 - likewise

        if on_meta:
            factory.apply(dense.without_content(len(rows), self.vocab_size), results)
            return
        logits = torch.from_numpy(np.stack(rows))
        codes = dense.apply(factory, results, logits, torch.arange(len(rows))).tolist()
        if dense.IS_WRONG in codes:
            raise EditsError("apply left NaN or +inf")
        if dense.IS_EMPTY in codes:
            raise NoTokenError
        for row, after in zip(rows, logits.numpy(), strict=True):
            row[:] = after

    def close(self) -> None:
        """Close the factory."""
        self._registry.close()
