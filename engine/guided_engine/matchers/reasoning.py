"""Where a sequence stops reasoning, and its grammar begins; and what it may not say until then."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from guided_grammar.matching import Matcher


class Boundary(NamedTuple):
    """Where a grammar begins among some tokens; both are one past the row after the last where it does not.

    `grammar` is the first token that it takes, `mask` the first that it constrains: one later if reasoning
    ends with a token that is content itself.
    """

    grammar: int
    mask: int


class Opening(NamedTuple):
    """What holds of some tokens that would come next: a Boundary, and what holds before it.

    `taken` is how many of those before `grammar` may come; `held_back` are tokens that may not before `mask`.
    """

    grammar: int
    mask: int
    taken: int
    held_back: frozenset[int]


AT_ONCE: Final = Opening(0, 0, 0, frozenset())


class Reasoner(Protocol):
    """What knows the model's way of reasoning; one per sequence."""

    def has_ended(self, prompt: Sequence[int]) -> bool:
        """Return whether reasoning is over after this prompt (token ids), or never begins."""

    def boundary(self, before: list[int], tokens: Sequence[int]) -> Boundary:
        """Return where reasoning, not over in `before`, ends in `tokens` (ids); `before` is not changed."""

    def has_begun(self, prompt: Sequence[int]) -> bool:
        """Return whether the model reasons after a prompt: not any token at all would end it."""

    def implicit_ends(self) -> Sequence[int]:
        """Return the tokens that end reasoning and are content themselves, as far as they are known."""


class Reasoning:
    """How far one sequence has come: told of every token that it accepts.

    `make` makes its reasoner, off the path to the forward pass; `matcher` is at its start until reasoning
    ends; `stops` end its text, beside the matcher's ends; `has_ended` is what the API server says of the
    prompt, None where it left that to us.
    """

    def __init__(
        self,
        make: Callable[[], Reasoner],
        prompt: Sequence[int],
        matcher: Matcher,
        stops: Iterable[int] = (),
        *,
        has_ended: bool | None,
    ) -> None:
        self._make = make
        self._matcher = matcher
        self._stops = matcher.ends.union(stops)
        self._prompt = prompt
        self._has_ended = has_ended
        self._reasoner: Reasoner | None = None
        self._tokens: list[int] = []  # prompt and output while it reasons, once it has a reasoner
        self._end: int | None = 0 if has_ended else None  # output tokens before the grammar's first
        self._held_back: frozenset[int] = frozenset()

    def opening(self, tokens: Sequence[int]) -> Opening:
        """Return where the grammar begins among tokens that would come next, and what holds before it.

        Raises what a parser raises.
        """
        if self._is_over():
            return AT_ONCE
        begin = self._started().boundary(self._tokens, tokens)
        before = min(begin.grammar, len(tokens))
        taken = next((index for index in range(before) if tokens[index] in self._held_back), before)
        return Opening(begin.grammar, begin.mask, taken, self._held_back)

    def accept(self, known: int, tokens: Sequence[int]) -> int:
        """Accept output tokens; return the index in `tokens` of the first that the grammar constrains.

        `known` is the number of output tokens before them. Raises what a parser raises.
        """
        if not self._is_over():
            first = self._started().boundary(self._tokens, tokens).grammar
            if first > len(tokens):
                self._tokens.extend(tokens)
                return len(tokens)
            self._end = known + first
        return 0 if self._end is None else max(0, self._end - known)

    def rewind(self, kept: int) -> None:
        """Go back to the start; the first `kept` tokens of the output will come again as they were."""
        if self._end is None or self._end > kept:
            self._end = 0 if self._has_ended else None
            self._tokens = list(self._prompt)

    @property
    def end(self) -> int | None:
        """Return how many tokens it took, None while it goes on."""
        return self._end

    def go_on_from(self, end: int) -> None:
        """Take it for over after so many tokens, as another process has seen."""
        self._end = end

    def _is_over(self) -> bool:
        if self._end is None:
            reasoner = self._started()
            if self._has_ended is None:
                self._has_ended = reasoner.has_ended(self._prompt)
            if self._has_ended:
                self._end = 0
        return self._end is not None

    def _started(self) -> Reasoner:
        if self._reasoner is None:
            self._reasoner = reasoner = self._make()
            self._tokens = list(self._prompt)
            if not reasoner.has_begun(self._prompt):
                self._has_ended = True
            # An end of the text would leave its guided part out; what begins that part has to be allowed.
            begins = reasoner.implicit_ends()
            misfits = (token for token in begins if not self._matcher.valid_prefix([token]))
            self._held_back = self._stops.union(misfits)
        return self._reasoner
