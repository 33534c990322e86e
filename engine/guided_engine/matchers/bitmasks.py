"""The step's bitmask: filled by the backend of each sequence, as wide as the runner wants it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from guided_contract.wire import Backend
from guided_engine.matchers.memory import MANY
from guided_engine.matchers.stopwatch import LIMIT_NS, MORE_NS
from guided_grammar.backend import Backend as GrammarBackend
from guided_grammar.guided_rows import GuidedRows
from guided_grammar.masks import FULL_MASK, Bitmask, words

# Nearly every mask allows a token among the first of a vocabulary, where single bytes stand.
_PROBED_WORDS: Final = 32

Fill = Callable[[Sequence[GuidedRows[Any]], Bitmask], None]


@dataclass(slots=True)
class _Filler:
    """How a backend fills, the words that its rows have, and rows for it where that is another width."""

    fill: Fill
    words: int
    work: Callable[[int], None]
    scratch: Bitmask | None = None
    is_watched: bool = False

    def run(self, batch: Sequence[GuidedRows[Any]], bitmask: Bitmask, *, one_by_one: bool) -> None:
        """Fill the rows of `batch`. After a step that took long, once one by one: who does again is slow.

        What a library makes at its first use takes long once.
        """
        start_ns, was_watched = time.perf_counter_ns(), self.is_watched
        if was_watched or one_by_one:
            for guided in batch:
                self.work(guided.number)
                walk_ns, cpu_ns = time.perf_counter_ns(), time.process_time_ns()
                fill_batch([guided], bitmask, self.fill)
                # Without the time in which no thread of this process had a core.
                took_ns = min(time.perf_counter_ns() - walk_ns, time.process_time_ns() - cpu_ns)
                guided.is_slow = was_watched and took_ns > LIMIT_NS + guided.rows * MORE_NS
        else:
            self.work(MANY)
            fill_batch(batch, bitmask, self.fill)
        took_ns = time.perf_counter_ns() - start_ns
        # One by one a step takes longer than its threads together: that says nothing of one sequence.
        is_long = took_ns > LIMIT_NS and took_ns > LIMIT_NS + MORE_NS * sum([w.rows for w in batch])
        self.is_watched = is_long and not was_watched and not one_by_one


class MaskFiller:
    """Fills rows of all backends into one array, each row as wide as the model's logits.

    A step has at most `rows` rows; a library may count more or fewer tokens than the model. `work` is told
    whose rows are being filled, by GuidedRows.number, or that it is those of MANY.
    """

    def __init__(
        self,
        rows: int,
        vocab_size: int,
        backends: Mapping[Backend, GrammarBackend],
        work: Callable[[int], None] = lambda _number: None,
    ) -> None:
        self._rows = rows
        self._words = words(vocab_size)
        self._backends = backends
        self._work = work
        self._fillers: dict[Backend, _Filler] = {}
        self._one_by_one = False

    def watch(self) -> None:
        """Fill the next step's rows one by one."""
        self._one_by_one = True

    def fill(self, batch: Sequence[GuidedRows[Any]], bitmask: Bitmask) -> int:
        """Fill the rows of `batch`, in ascending order; the others are not set.

        `bitmask` is [rows, ceil(vocabulary / 32)] int32. Returns nanoseconds of a row.
        """
        start_ns = time.perf_counter_ns()
        by_backend: dict[Backend, list[GuidedRows[Any]]] = {}
        for guided in batch:
            by_backend.setdefault(guided.matcher.backend, []).append(guided)
        for backend, of_backend in by_backend.items():
            self._fill_backend(backend, of_backend, bitmask)
        self._one_by_one = False
        return (time.perf_counter_ns() - start_ns) // len(bitmask)

    def _fill_backend(self, backend: Backend, batch: Sequence[GuidedRows[Any]], bitmask: Bitmask) -> None:
        filler = self._fillers.get(backend)
        if filler is None:
            library = self._backends[backend]
            filler = _Filler(library.fill, words(library.vocab_size), self._work)
            self._fillers[backend] = filler
        if filler.words == self._words:
            filler.run(batch, bitmask, one_by_one=self._one_by_one)
            return
        # It counts another vocabulary, and writes its own width; what the model lacks cannot be sampled.
        if filler.scratch is None:
            filler.scratch = np.full((self._rows, filler.words), FULL_MASK, dtype=np.int32)
        filler.run(batch, filler.scratch, one_by_one=self._one_by_one)
        shared = min(filler.words, self._words)
        for guided in batch:
            bitmask[guided.row : guided.end, :shared] = filler.scratch[guided.row : guided.end, :shared]
            bitmask[guided.row : guided.row + guided.filled, shared:] = 0
            bitmask[guided.row + guided.filled : guided.end, shared:] = FULL_MASK


def settle_dead_ends(batch: Sequence[GuidedRows[Any]], bitmask: Bitmask) -> list[GuidedRows[Any]]:
    """Return those whose next token has no choice at all, their rows made full.

    A later row without a choice makes the draft before it unacceptable: sampling may not go that way.
    """
    has_choice: npt.NDArray[np.bool_] = np.any(bitmask[:, :_PROBED_WORDS], axis=1)  # [rows]
    for row in np.flatnonzero(~has_choice).tolist():
        has_choice[row] = bitmask[row].any()
    if has_choice.all():
        return []
    dead = []
    for guided in batch:
        blocked = np.flatnonzero(~has_choice[guided.row : guided.end])
        if not blocked.size:
            continue
        first = int(blocked[0])
        bitmask[guided.row + first : guided.end] = FULL_MASK
        if first == 0:
            dead.append(guided)
        else:
            guided.valid = min(guided.valid, first - 1)
    return dead


def fill_batch(batch: Sequence[GuidedRows[Any]], bitmask: Bitmask, fill: Fill) -> None:
    """Fill every row of `batch`, all of one backend. Never raises: a failure stays in `error` of its rows."""
    live = [guided for guided in batch if not guided.matcher.is_terminated()]
    try:
        if live:
            fill(live, bitmask)
            _restrict(live, bitmask)
    except Exception:  # noqa: BLE001 - whatever a native library raises; one by one shows whose fault it is
        for guided in live:
            _fill_alone(guided, bitmask, fill)
    for guided in batch:
        if guided.filled < guided.rows:
            if guided.matcher.is_terminated():
                guided.valid = len(guided.drafts)
            bitmask[guided.row + guided.filled : guided.end] = FULL_MASK


def _restrict(batch: Sequence[GuidedRows[Any]], bitmask: Bitmask) -> None:
    """Take what counted bounds forbid out of the filled rows, and the drafts that break one."""
    for guided in batch:
        counted = guided.matcher.counted
        if counted is not None:
            rows = bitmask[guided.row : guided.row + guided.filled]
            guided.valid = counted.restrict(rows, guided.drafts[: guided.valid])
            guided.filled = min(guided.filled, 1 + guided.valid)


def _fill_alone(guided: GuidedRows[Any], bitmask: Bitmask, fill: Fill) -> None:
    guided.valid = guided.filled = 0
    try:
        fill([guided], bitmask)
        _restrict([guided], bitmask)
    except Exception as error:  # noqa: BLE001 - see fill_batch
        guided.error = error
        guided.valid = guided.filled = 0
