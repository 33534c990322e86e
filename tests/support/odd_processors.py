"""Logits processors that misbehave or watch, for tests."""

from collections.abc import Sequence
from typing import Any, ClassVar

from guided_engine.processors.interface import (
    DenseFactory,
    Edits,
    Params,
    ProcessorFactory,
    SequenceInfo,
    SequenceProcessor,
)


class Same(SequenceProcessor):
    """Gives the same for each row."""

    def __init__(self, row: Any) -> None:
        self._row = row

    def accept(self, tokens: Sequence[int]) -> None:
        pass

    def prepare(self, ahead: Sequence[int]) -> list[Any]:
        return [self._row] * (1 + len(ahead))


class GivesNan(DenseFactory[Params]):
    """Leaves a NaN in every row."""

    def create(self, _sequence: SequenceInfo[Params]) -> SequenceProcessor | None:
        return Same(0)

    def apply(self, logits: Any, _rows: Sequence[Any]) -> None:
        logits[:, 3] = float("nan")


class Waves(DenseFactory[Params]):
    """Changes every logit, each row otherwise: by how many tokens the sequence has and what their sum is."""

    def create(self, _sequence: SequenceInfo[Params]) -> SequenceProcessor | None:
        return _Wave()

    def apply(self, logits: Any, rows: Sequence[tuple[int, int]]) -> None:
        import torch
        from vllm.utils.torch_utils import async_tensor_h2d

        # A copy from memory that is not pinned would wait for the device.
        shapes = async_tensor_h2d(rows, dtype=torch.float32, device=logits.device)
        columns = torch.arange(logits.shape[1], device=logits.device)
        logits += 3 * torch.sin(columns * (1 + shapes[:, :1]) + shapes[:, 1:])


class _Wave(SequenceProcessor):
    def __init__(self) -> None:
        self._tokens: list[int] = []

    def prepare(self, ahead: Sequence[int]) -> list[tuple[int, int]]:
        texts = [[*self._tokens, *ahead[:count]] for count in range(1 + len(ahead))]
        return [(len(text) % 7, sum(text) % 11) for text in texts]

    def accept(self, tokens: Sequence[int]) -> None:
        self._tokens.extend(tokens)


class LeavesNothing(GivesNan):
    """Forbids every token."""

    def apply(self, logits: Any, _rows: Sequence[Any]) -> None:
        logits.fill_(float("-inf"))


class OnlyParams(Params):
    token: int = 0


class Only(ProcessorFactory[OnlyParams]):
    """Permits one token alone: under a grammar that does not permit it, there is none left."""

    Params = OnlyParams
    request_params = frozenset({"token"})

    def create(self, sequence: SequenceInfo[OnlyParams]) -> SequenceProcessor | None:
        return Same(Edits.only([sequence.params.token]))


class MarksParams(Params):
    mark: int | None = None
    max_tokens: int | None = None


class Marks(ProcessorFactory[MarksParams]):
    """Has a sequence consist of the token `mark`: each one, or those that ask for so many tokens."""

    Params = MarksParams
    request_params = frozenset({"mark"})

    def create(self, sequence: SequenceInfo[MarksParams]) -> SequenceProcessor | None:
        token, wanted = sequence.params.mark, sequence.params.max_tokens
        is_meant = token is not None and wanted in {None, sequence.max_tokens}
        return Same(Edits.add([token], 1000.0)) if is_meant else None


class Spy(ProcessorFactory[Params]):
    """Remembers the sequences that it was shown, and has no processors."""

    seen: ClassVar[list[SequenceInfo[Params]]] = []

    def create(self, sequence: SequenceInfo[Params]) -> SequenceProcessor | None:
        self.seen.append(sequence)
        return None


class Target:
    """As an AdapterLogitsProcessor, told by its methods: forbids all but the request's target."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: Any) -> None:
        pass

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        if not 0 <= sampling_params.target < 128:
            raise ValueError("a target is a token id")

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: Any) -> Any:
        def only(_output_ids: list[int], logits: Any) -> Any:
            logits[: params.target] = float("-inf")
            logits[params.target + 1 :] = float("-inf")
            return logits

        return only
