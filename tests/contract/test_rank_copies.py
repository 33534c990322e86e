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

from guided_engine.compat import minor
from guided_engine.compat.runner_v2 import RunnerV2
from guided_engine.matchers.memory import SharedMemory
from guided_engine.ranks.mask_memory import MaskMemory
from support.rank import VOCAB, Rank, Sampled, arrival

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
    import vllm.v1.core.sched.output  # noqa: F401 - loads transformers, which reads torch.cuda's classes
    from vllm.v1.worker.gpu import structured_outputs

    late = LateDevice()
    monkeypatch.setattr(structured_outputs, "async_tensor_h2d", late.copy)
    kernel = type("Kernel", (), {"__getitem__": lambda _self, _grid: late.launch})()
    monkeypatch.setattr(structured_outputs, "_apply_grammar_bitmask_kernel", kernel)
    monkeypatch.setattr(torch.cuda, "Event", late.event)
    for name in ("Stream", "stream", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, lambda *_a, **_k: _Stream())
    return late


class OnDevice:
    """A rank whose masks go through vLLM's own masker of Model Runner V2."""

    def __init__(self) -> None:
        from vllm.v1.worker.gpu.structured_outputs import StructuredOutputsWorker

        self.rank = Rank()
        self.ticket = self.rank.load("(abc)*")
        bonus = () if minor.here().has_fixed_mask_rows else (1,)
        masker = StructuredOutputsWorker(8, VOCAB, torch.device("cpu"), 1, *bonus)
        self.runner: Any = SimpleNamespace(structured_outputs_worker=masker, batch_sharder=None)
        self.adapter = RunnerV2(self.runner, self.rank.guide)
        self.expected: list[np.ndarray] = []

    def step(self, number: int) -> None:
        """Take one step; its token is known to the host at once, whatever the device has done."""
        new = [arrival("r", self.ticket, prompt_tokens=[1], stop_tokens=())] if number == 0 else []
        computed = {"r": number} if number else {}
        masks = self.rank.step(new, computed=computed, scheduled={"r": 1})
        self.expected.append(masks.bitmask.copy())
        self.adapter.sample(self._sample, masks, None)
        self.rank.guide.sampled(Sampled({"r": [TEXT[number]]}))

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


def test_memory_that_cannot_be_pinned_spoils_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA keeps the error of a call for whoever asks next, which torch does after each kernel."""
    pending: list[int] = []

    def zeros(*_shape: int, device: str) -> None:
        if pending:
            raise RuntimeError(f"CUDA error {pending.pop()} on {device}")

    def refuse(_address: int, _size: int, _flags: int) -> int:
        pending.append(801)
        return pending[0]

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: SimpleNamespace(cudaHostRegister=refuse))
    monkeypatch.setattr(torch, "zeros", zeros)
    MaskMemory(SharedMemory(2, VOCAB))
    assert not pending


def test_a_device_that_copies_late_sees_every_mask(device: LateDevice) -> None:
    rank = OnDevice()
    for number in range(STEPS):
        rank.step(number)
    device.finish()
    assert len(device.seen) == len(rank.expected) == STEPS
    assert len({mask.tobytes() for mask in rank.expected}) == 3
    assert all(np.array_equal(a, b[:1]) for a, b in zip(rank.expected, device.seen, strict=True))
    # A copy and a kernel a step: when the third step's memory is wanted, two steps' work waits.
    assert device.most_behind == 4
