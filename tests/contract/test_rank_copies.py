"""No mask is overwritten before the device has read it, shown on a device that reads as late as it may.

vLLM's own masker of Model Runner V2 copies our memory without waiting when it is pinned. This device does
nothing that was asked of it before somebody waits for an event, and then no more than lies before that event.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from llguidance import LLMatcher

from guided_contract.wire import Load, Ticket
from guided_engine.compat.runner_v2 import RunnerV2
from guided_engine.processors.interface import Context
from guided_engine.processors.registry import Registry
from guided_engine.ranks.arrivals import RankTraits
from guided_engine.ranks.bitmasks import BitmaskBuffer
from guided_engine.ranks.loaded_grammars import LoadedGrammars
from guided_engine.ranks.rank_guide import RankGuide
from guided_engine.ranks.step import Arrival, Plan
from guided_grammar.registry import Backends
from support.rank import VOCAB, ByteVocabulary

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

STEPS = 9
TEXT = b"abcabcabcabc"


class LateDevice:
    """A queue of work, done no earlier than somebody waits for it."""

    def __init__(self) -> None:
        self.queue: list[Callable[[], None]] = []
        self.done = 0
        self.seen: list[np.ndarray] = []
        self.most_behind = 0

    def copy(self, data: np.ndarray, *, out: torch.Tensor) -> torch.Tensor:
        """Stand for async_tensor_h2d with a pinned source."""
        source = torch.from_numpy(data)

        def copy() -> None:
            out.copy_(source)

        self.queue.append(copy)
        return out

    def launch(self, *arguments: Any, **_meta: Any) -> None:
        """Stand for the kernel that masks: it reads the device's copy when its turn comes."""
        bitmask = arguments[4]
        self.queue.append(lambda: self.seen.append(bitmask.numpy().copy()))

    def event(self) -> Any:
        return SimpleNamespace(record=lambda: None, synchronize=self._wait_for(len(self.queue)))

    def finish(self) -> None:
        self._wait_for(len(self.queue))()

    def _wait_for(self, end: int) -> Callable[[], None]:
        def wait() -> None:
            self.most_behind = max(self.most_behind, len(self.queue) - self.done)
            while self.done < end:
                self.queue[self.done]()
                self.done += 1

        return wait


class _Stream:
    def wait_stream(self, _other: Any) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *_error: object) -> None: ...


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> LateDevice:
    from vllm.v1.worker.gpu import structured_outputs

    late = LateDevice()
    monkeypatch.setattr(structured_outputs, "async_tensor_h2d", late.copy)
    kernel = type("Kernel", (), {"__getitem__": lambda _self, _grid: late.launch})()
    monkeypatch.setattr(structured_outputs, "_apply_grammar_bitmask_kernel", kernel)
    monkeypatch.setattr(torch.cuda, "Event", late.event)
    for name in ("Stream", "stream", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, lambda *_a, **_k: _Stream())
    return late


class Rank:
    """A guide whose masks go through vLLM's own masker of Model Runner V2."""

    def __init__(self) -> None:
        from vllm.v1.worker.gpu.structured_outputs import StructuredOutputsWorker

        loaded_grammars = LoadedGrammars(Backends(ByteVocabulary()))
        pattern = "(abc)*"
        spec = LLMatcher.grammar_from_regex(pattern)
        assert not loaded_grammars.load(Load(key=pattern, backend="guidance", spec=spec)).error
        self.ticket = Ticket(key=pattern, backend="guidance")
        self.buffer = BitmaskBuffer(8, VOCAB, Backends(ByteVocabulary()))
        self.guide = RankGuide(
            RankTraits(0, VOCAB, is_async=True),
            loaded_grammars,
            Registry([], Context(vocab_size=VOCAB)),
            self.buffer,
            lambda _record: None,
        )
        masker = StructuredOutputsWorker(8, VOCAB, torch.device("cpu"), 1, 1)
        self.runner: Any = SimpleNamespace(structured_outputs_worker=masker, batch_sharder=None)
        self.adapter = RunnerV2(self.runner, self.guide)
        self.expected: list[np.ndarray] = []

    def step(self, number: int) -> None:
        """Take one step; its token is known to the host at once, whatever the device has done."""
        arrival = Arrival(
            request_id="r",
            prompt_tokens=[1],
            prompt_length=1,
            known_tokens=[1],
            computed=0,
            is_guided=True,
            ticket=self.ticket,
            stop_tokens=(),
            arguments={},
        )
        plan = Plan(
            finished=(),
            arrivals=[arrival] if number == 0 else [],
            resumed={},
            computed=[("r", number)] if number else [],
            scheduled={"r": 1},
            drafts={},
        )
        self.guide.begin(plan)
        masks = self.guide.masks()
        assert masks is not None
        self.expected.append(masks.bitmask.copy())
        self.adapter.sample(self._sample, masks, None)
        self.guide.sampled(lambda: [("r", [TEXT[number]])])

    def _sample(self, grammar_output: Any) -> None:
        batch = SimpleNamespace(
            req_ids=["r"],
            cu_num_logits_np=np.array([0, 1]),
            num_draft_tokens_per_req=None,
            cu_num_logits=torch.tensor([0, 1]),
        )
        self.runner.structured_outputs_worker.apply_grammar_bitmask(
            torch.zeros(1, VOCAB, device="meta"),  # not a CPU's
            batch,
            grammar_output.structured_output_request_ids,
            grammar_output.grammar_bitmask,
        )


def run(rank: Rank, device: LateDevice) -> bool:
    """Return whether the device saw every step's mask as it was filled."""
    for number in range(STEPS):
        rank.step(number)
    device.finish()
    assert len(device.seen) == len(rank.expected) == STEPS
    assert len({mask.tobytes() for mask in rank.expected}) == 3
    return all(np.array_equal(a, b[:1]) for a, b in zip(rank.expected, device.seen, strict=True))


def test_a_device_that_copies_late_sees_every_mask(device: LateDevice) -> None:
    assert run(Rank(), device)
    # A copy and a kernel a step: when the third step's memory is wanted, two steps' work waits.
    assert device.most_behind == 4
