"""What an author of a logits processor implements; it needs neither vLLM nor torch, and so is easily tested.

A **factory** is made once on each rank, and makes a **processor** for each sequence. A step has one row of
logits for the next token, and under speculation one more for each draft, as if that draft were accepted:

    rows = processor.prepare(drafts)      # one result per row: what to change in it
    ...                                   # the rank applies them, samples, and verifies the drafts
    processor.accept(tokens)              # those that really became part of the sequence

`prepare` looks ahead without moving: nothing is ever taken back. Every rank holds the same processors and
must come to the same results, so a processor uses no clock, no random numbers that are not seeded by the
sequence, and no state that sequences share and change.

The configuration names factories as "package.module:Class".
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

from guided_engine.processors.edits import Edits


class Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a factory can be told, with types, defaults and bounds (`Annotated[int, msgspec.Meta(ge=1)]`).

    A subclass, `class MyParams(Params, frozen=True)`, names its fields; another name or a value of another
    type is refused before anything starts.
    """


P = TypeVar("P", bound=Params)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What does not change on a rank.

    Attributes
    ----------
    vocab_size
        Columns of the logits; ids of generated tokens are below it.
    tokenizer
        The model's, as vLLM has it; to be read only.
    token_bytes
        Each token's bytes by its id, empty for special tokens and ids without text.
    stop_tokens
        What ends the model's texts.
    device
        Where the logits are, as torch writes it, for example "cuda:0".
    rank
        Number of the rank.
    vllm_config, is_pin_memory
        vLLM's own, which differs between its versions: what an AdapterLogitsProcessor is made with.
    """

    vocab_size: int
    tokenizer: Any = None
    token_bytes: Sequence[bytes] = ()
    stop_tokens: frozenset[int] = frozenset()
    device: str = "cpu"
    rank: int = 0
    vllm_config: Any = None
    is_pin_memory: bool = False


@dataclass(frozen=True, kw_only=True)  # typing cannot make a SequenceInfo[P] that has slots
class SequenceInfo(Generic[P]):
    """What is known of a sequence when it starts.

    Attributes
    ----------
    request_id
        Its name in vLLM; each of n > 1 choices is a sequence with a name of its own.
    prompt_tokens
        Token ids; empty where the prompt is embeddings. Some may be beyond the logits' columns: a multimodal
        model's placeholders.
    stop_tokens
        What ends this sequence: the model's and the request's own.
    max_tokens
        How many tokens it may generate at most; None: no bound but the model's length.
    params
        The factory's, with what the request has set of them.
    sampling_params
        The request's SamplingParams, which are vLLM's own and differ between its versions; to be read only.
    """

    request_id: str = ""
    prompt_tokens: Sequence[int] = ()
    stop_tokens: frozenset[int] = frozenset()
    max_tokens: int | None = None
    params: P = field(default_factory=Params)  # type: ignore[assignment]  # P is bound to Params
    sampling_params: Any = None


class SequenceProcessor(ABC):
    """The state of one sequence on one rank.

    An exception in any method ends this sequence alone, with code sequence_processor_failed.
    """

    @abstractmethod
    def prepare(self, ahead: Sequence[int]) -> Sequence[Any]:
        """Return what to change in each row of this step, without moving.

        Called once in each step in which the sequence samples.

        Parameters
        ----------
        ahead
            The drafts of this step (token ids). Row `i` is for the token after the first `i` of them.

        Returns
        -------
        rows
            One result per row, `len(ahead) + 1` in all: Edits, or None where nothing is to change. Of a
            DenseFactory's processor what its `apply` is to be given for the row; None: it leaves it alone.
        """

    @abstractmethod
    def accept(self, tokens: Sequence[int]) -> None:
        """Advance by tokens that are now part of the sequence, at least one; they need not be drafts.

        After a preemption a new processor gets all tokens so far in one call.
        """

    def release(self) -> None:  # noqa: B027 - most have nothing to give back
        """Give back what it holds; called once, when the sequence is over or before it is made anew."""


class ProcessorFactory(ABC, Generic[P]):
    """Makes processors; constructed once on each rank.

    Attributes
    ----------
    Params
        The class of its parameters.
    request_params
        Those that a request may set for itself, by name; none by default. A resource that enforces the
        processor permits none either.
    supports_speculation
        False: `prepare` is never given drafts; those of its sequences are refused, so that such a sequence
        advances by one token per step.
    """

    Params: ClassVar[type[Params]] = Params
    request_params: ClassVar[frozenset[str]] = frozenset()
    supports_speculation: ClassVar[bool] = True

    def __init__(self, params: P, context: Context) -> None:
        self.params = params
        self.context = context

    @classmethod
    def check(cls, params: P) -> None:
        """Refuse parameters that their types allow and that make no sense together.

        Runs where there is no rank: in the API server. It must load nothing.

        Raises
        ------
        ValueError
            Why, in words for whoever wrote them.
        """

    @abstractmethod
    def create(self, sequence: SequenceInfo[P]) -> SequenceProcessor | None:
        """Return the processor of a sequence that has generated nothing; None: it needs none."""

    def close(self) -> None:
        """Give back what the factory holds, such as a helper process; called once, when the rank ends."""


class DenseFactory(ProcessorFactory[P]):
    """A factory whose processors need the logits themselves: it changes its rows of a step, many at once."""

    @abstractmethod
    def apply(self, logits: Any, rows: Sequence[Any]) -> None:
        """Change `logits` in place.

        Nothing of it may be read by the host (`.item()`, `.tolist()`, `if tensor:`): that would make the step
        wait for the device.

        Parameters
        ----------
        logits
            Tensor [len(rows), vocab_size] float32 on the device: rows of its sequences in this step, as many
            as 64 MiB hold (on a CPU 4). What is -inf before is -inf afterwards, whatever is written there.
        rows
            For each row what `prepare` returned for it.
        """


__all__ = [
    "Context",
    "DenseFactory",
    "Edits",
    "Params",
    "ProcessorFactory",
    "SequenceInfo",
    "SequenceProcessor",
]
