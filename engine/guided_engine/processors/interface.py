"""What an author of a logits processor implements; it needs no vLLM, so that a processor is easily tested.

The configuration names factories as "package.module:Class". Each rank constructs every factory once, with
the parameters of the configuration as keyword arguments, and asks it for a state per sequence.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class SequenceInfo:
    """What is known of a sequence when it starts.

    `arguments` are the client's `vllm_xargs`, without what begins with our reserved prefix.
    """

    prompt_tokens: Sequence[int]
    vocab_size: int
    stop_tokens: frozenset[int] = frozenset()
    arguments: Mapping[str, Any] = field(default_factory=dict)


class SequenceProcessor(ABC):
    """The state of one sequence; every rank holds its own, and all must come to the same results.

    An exception in any method ends this sequence alone, with code sequence_processor_failed; also after
    drafts that would have been rejected.
    """

    @abstractmethod
    def accept(self, token: int) -> None:
        """Advance the state by a token that is now part of the sequence, or in a fork by a draft."""

    @abstractmethod
    def apply(self, logits: Any) -> None:
        """Change the logits of the next token in place, before the grammar's mask.

        `logits` is a tensor [vocabulary] on the engine's device. At least one entry must stay finite.
        """

    def fork(self) -> Self:
        """Return an independent copy: drafts advance a fork, and a rejected draft leaves no trace.

        The default copies deeply; a processor with a large constant part should share it.
        """
        return copy.deepcopy(self)


class ProcessorFactory(ABC):
    """Makes states; constructed once per rank."""

    @abstractmethod
    def create(self, sequence: SequenceInfo) -> SequenceProcessor | None:
        """Return a new state, or None where this sequence needs none."""
