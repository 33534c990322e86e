"""The processors of one sequence on one rank: advanced together, asked together, and failing together."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from guided_engine.processors import edits
from guided_engine.processors.edits import (
    FORBIDDEN,
    Edits,
    EditsError,
    NoTokenError,
    combined,
    is_ascending,
)
from guided_engine.processors.failures import PASSED_ON, log_failure
from guided_engine.processors.interface import DenseFactory, SequenceProcessor
from guided_engine.processors.registry import ProcessorError, Running

_LEAVES_NONE: Final = Edits(np.zeros(1, np.int32), np.full(1, FORBIDDEN, np.float32), is_only=True)


class Dense(NamedTuple):
    """What a DenseFactory is to be given for one sequence: its result for each row."""

    factory: DenseFactory[Any]
    rows: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a sequence's processors change in a step: its rows (None: nothing), and `dense` after that."""

    rows: Sequence[Edits | None]
    dense: Sequence[Dense] = ()


class SequenceProcessors:
    """The processors of one sequence.

    `make` makes them, one after another, as of a sequence that has generated nothing; `took` is told how many
    nanoseconds a call of a processor took, by its name.
    """

    def __init__(
        self,
        make: Callable[[], Iterable[Running]],
        vocab_size: int,
        took: Callable[[str, int], None] = lambda _name, _took_ns: None,
    ) -> None:
        self._make = make
        self._vocab_size = vocab_size
        self._took = took
        self._running: list[Running] = []

    def __bool__(self) -> bool:
        return bool(self._running)

    @property
    def names(self) -> list[str]:
        """Return their names, in the order in which they apply."""
        return [each.name for each in self._running]

    @property
    def processors(self) -> list[SequenceProcessor]:
        """Return them, in that order."""
        return [each.processor for each in self._running]

    @property
    def support_speculation(self) -> bool:
        """Return whether all take drafts."""
        return all(each.factory.supports_speculation for each in self._running)

    def start(self) -> None:
        """Make them, in place of those that there are; raises ProcessorError, and there are none then."""
        self.release()
        try:
            for each in self._make():  # what is there when one raises is released
                self._running.append(each)
        except PASSED_ON:
            raise
        except ProcessorError:
            self.release()
            raise
        except BaseException as error:
            self.release()
            raise ProcessorError((), error) from error

    def accept(self, tokens: Sequence[int]) -> None:
        """Advance by tokens that are now part of the sequence; raises ProcessorError if one raised."""
        given = tuple(tokens)  # which none can change for the next
        for name, _, processor in self._running:
            began_ns = time.perf_counter_ns()
            try:
                processor.accept(given)
            except PASSED_ON:
                raise
            except BaseException as error:
                raise ProcessorError((name,), error) from error
            self._took(name, time.perf_counter_ns() - began_ns)

    def prepare(self, ahead: Sequence[int]) -> Prepared:
        """Return what they change in the rows of a step with these drafts; none of them moves.

        Raises ProcessorError if one raised or its result cannot be applied, NoTokenError if they forbid each
        token of the first row. Another row may never be reached: whoever applies its edits finds none left.
        """
        drafts = tuple(ahead)  # which nobody can change
        sparse: list[dict[str, Edits]] = [{} for _ in range(1 + len(ahead))]
        dense = []
        for name, factory, processor in self._running:
            began_ns = time.perf_counter_ns()
            try:
                given = processor.prepare(drafts)
                self._took(name, time.perf_counter_ns() - began_ns)
                results = _read(given, len(sparse))
                if isinstance(factory, DenseFactory):
                    dense.append(Dense(factory, results))
                    continue
                edits.check([each for each in results if each is not None], self._vocab_size)
                for row, result in zip(sparse, results, strict=True):
                    if result is not None:
                        row[name] = result.copied()
            except PASSED_ON:
                raise
            except BaseException as error:
                raise ProcessorError((name,), error) from error
        return Prepared([_together(sparse[0]), *map(_behind_a_draft, sparse[1:])], dense)

    def release(self) -> None:
        """Release them. What one raises is lost: the sequence is over, and the others are released."""
        running, self._running = self._running, []
        for each in running:
            try:
                each.processor.release()
            except PASSED_ON:
                raise
            except BaseException as error:  # noqa: BLE001 - the user's code, of a sequence that is over
                log_failure(f"logits processor {each.name} failed to release a sequence", error)


def _read(results: Any, expected: int) -> list[Any]:
    """Return the results, read once: the author's list may be another the next time."""
    if not isinstance(results, Sequence) or len(results) != expected:
        given = f"{len(results)} results" if isinstance(results, Sequence) else f"a {type(results).__name__}"
        raise EditsError(f"prepare returned {given}; it must return a list of {expected}, one for each row")
    return [results[row] for row in range(expected)]


def _behind_a_draft(row: Mapping[str, Edits]) -> Edits | None:
    try:
        return _together(row)
    except NoTokenError:
        return _LEAVES_NONE


def _together(row: Mapping[str, Edits]) -> Edits | None:
    if not row:
        return None
    [first, *others] = row.values()
    if not others and is_ascending(first.ids) and (len(first.ids) or not first.is_only):
        return first if len(first.ids) else None
    try:
        return combined(row)
    except EditsError as error:
        raise ProcessorError(tuple(row), error) from error
