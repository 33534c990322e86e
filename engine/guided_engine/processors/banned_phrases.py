"""Phrases that a text never has, however tokens spell them."""

import functools
from collections.abc import Sequence
from typing import Annotated, Any, Final

from msgspec import Meta

from guided_engine.processors.interface import (
    Context,
    DenseFactory,
    Params,
    SequenceInfo,
    SequenceProcessor,
)
from guided_engine.processors.phrases import START, Phrases, Ranges, SortedTokens

_FORBIDDEN: Final = float("-inf")


class BannedParams(Params, frozen=True):
    """What BannedPhrases can be told.

    Attributes
    ----------
    phrases
        Texts, compared character by character: white space counts, and so does how an accent is written.
    ignore_case
        Whether upper and lower case are the same, as `re.IGNORECASE` has it: "ß" is not "SS".
    """

    phrases: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=100)]], Meta(min_length=1, max_length=1000)
    ]
    ignore_case: bool = False


class BannedPhrases(DenseFactory[BannedParams]):
    """Forbids each token that would complete a phrase in the generated text, and no other token.

    The prompt does not count, as with vLLM's `bad_words`: a phrase that begins in it may be completed. The
    text is that of all generated tokens, with what a model thinks, and without special tokens.

    A text that a grammar demands and that has a phrase cannot go on: its sequence ends. A request cannot set
    phrases, which would take the rank's time in a step; it can choose among lists that the resource names.

    It is a DenseFactory because the last letter of a phrase alone can begin more tokens than Edits may have.
    """

    Params = BannedParams

    def __init__(self, params: BannedParams, context: Context) -> None:
        super().__init__(params, context)
        self._tokens = context.token_bytes
        tokens = SortedTokens(self._tokens)
        if not len(tokens):
            raise ValueError("the text of the model's tokens is not known, so no phrase can be recognised")
        self._phrases = Phrases(params.phrases, ignore_case=params.ignore_case)
        self._completions = self._phrases.completions(tokens)
        self._order = tokens.order
        self._holding = tokens.containing(self._phrases)
        self._on = functools.cache(self._moved)  # by the device of the logits

    @classmethod
    def check(cls, params: BannedParams) -> None:
        """Refuse what is no Unicode text."""
        for phrase in params.phrases:
            try:
                phrase.encode()
            except UnicodeEncodeError as error:
                raise ValueError(f"the phrase {phrase!a} has half of a surrogate pair") from error

    def create(self, _sequence: SequenceInfo[BannedParams]) -> SequenceProcessor:
        """Return the processor of a sequence that has generated nothing."""
        return _Text(self)

    def after(self, node: int, tokens: Sequence[int]) -> int:
        """Return where a text stands that goes on with some tokens."""
        text: list[bytes] = []
        missing = self._phrases.longest
        # A preempted sequence brings all of its tokens; the last are enough.
        for token in reversed(tokens):
            text.append(self._tokens[token])
            missing -= len(text[-1])
            if missing <= 0:
                node = START
                break
        return self._phrases.follow(node, b"".join(reversed(text)))

    def row(self, node: int) -> Ranges | None:
        """Return what is forbidden behind a text, beside tokens that hold a phrase; None: nothing at all."""
        completing = self._completions[node]
        return completing if completing or len(self._holding) else None

    def apply(self, logits: Any, rows: Sequence[Ranges]) -> None:
        """Forbid the tokens; how many rows there are does not change how often the device is asked."""
        import torch  # noqa: PLC0415 - only ranks have it

        device = logits.device
        order, holding = self._on(device)
        if len(self._holding):
            logits.index_fill_(1, holding, _FORBIDDEN)
        ranges = [(number, *part) for number, parts in enumerate(rows) for part in parts]
        if not ranges:
            return
        row, low, high = self._sent(list(zip(*ranges, strict=True)), device)
        count = sum(high - low for _, low, high in ranges)
        # The places of all ranges, one behind the other, and to which range each belongs.
        ends = (high - low).cumsum(0)
        numbers = torch.arange(count, device=device)
        belongs = torch.searchsorted(ends, numbers, right=True)
        places = high[belongs] - (ends[belongs] - numbers)
        logits.index_put_((row[belongs], order[places]), logits.new_full((), _FORBIDDEN))

    def _moved(self, device: Any) -> tuple[Any, Any]:
        return self._sent(self._order, device), self._sent(self._holding, device)

    def _sent(self, values: Any, device: Any) -> Any:
        """Return integers on the device; from pinned memory, so that nobody waits for it."""
        import torch  # noqa: PLC0415 - only ranks have it

        kept = torch.tensor(values, pin_memory=self.context.is_pin_memory)
        return kept.to(device, non_blocking=True)


class _Text(SequenceProcessor):
    def __init__(self, banned: BannedPhrases) -> None:
        self._banned = banned
        self._node = START

    def prepare(self, ahead: Sequence[int]) -> Sequence[Ranges | None]:
        node = self._node
        rows = [self._banned.row(node)]
        for token in ahead:
            node = self._banned.after(node, [token])
            rows.append(self._banned.row(node))
        return rows

    def accept(self, tokens: Sequence[int]) -> None:
        self._node = self._banned.after(self._node, tokens)
