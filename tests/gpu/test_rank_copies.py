"""The copies of masks to a real device: pinned memory, streams, and a device that is behind."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from llguidance import LLMatcher

from guided_contract.wire import Load, Ticket
from guided_engine.ranks.bitmasks import BitmaskBuffer
from guided_engine.ranks.loaded_grammars import LoadedGrammars
from guided_grammar.guided_rows import GuidedRows
from guided_grammar.registry import Backends
from support.rank import VOCAB, ByteVocabulary

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

ROWS = 256
STEPS = 12
TEXT = b"abcabcabcabc"
# About 20 ms on today's devices: far behind what the host does in a step.
BEHIND_CYCLES = 40_000_000


class Rank:
    """Matchers of one grammar, a buffer, and vLLM's own masker of Model Runner V2 around both."""

    def __init__(self) -> None:
        from vllm.v1.worker.gpu.structured_outputs import StructuredOutputsWorker

        from guided_engine.compat.runner_v2 import RunnerV2

        loaded_grammars = LoadedGrammars(Backends(ByteVocabulary()))
        spec = LLMatcher.grammar_from_regex("(abc)*")
        assert not loaded_grammars.load(Load(key="k", backend="guidance", spec=spec)).error
        self.ticket = Ticket(key="k", backend="guidance")
        self.matchers = [loaded_grammars.matcher("k", ()) for _ in range(ROWS)]
        self.buffer = BitmaskBuffer(ROWS, VOCAB, Backends(ByteVocabulary()))
        self.ids = [str(row) for row in range(ROWS)]
        masker = StructuredOutputsWorker(ROWS, VOCAB, torch.device("cuda"), 1, 1)
        runner = SimpleNamespace(structured_outputs_worker=masker, batch_sharder=None)
        self.adapter = RunnerV2(runner, SimpleNamespace(has_factories=False))
        self.apply = runner.structured_outputs_worker.apply_grammar_bitmask
        bounds = np.arange(ROWS + 1, dtype=np.int32)
        self.batch = SimpleNamespace(
            req_ids=self.ids,
            cu_num_logits_np=bounds,
            cu_num_logits=torch.from_numpy(bounds).cuda(),
            num_draft_tokens_per_req=None,
        )

    def step(self, number: int) -> tuple[np.ndarray, torch.Tensor]:
        """Fill and mask behind a busy device; return the masks and the logits that they will have masked."""
        walks = [GuidedRows(matcher, row, 1, ()) for row, matcher in enumerate(self.matchers)]
        bitmask, _ = self.buffer.fill(walks, walks[-1].end)
        assert torch.from_numpy(bitmask).is_pinned()
        logits = torch.zeros(ROWS, VOCAB, device="cuda")
        with torch.cuda.stream(self.adapter._masker.copy_stream):
            torch.cuda._sleep(BEHIND_CYCLES)
        guide = SimpleNamespace(handed_over=self.buffer.handed_over)
        self.adapter._guide = guide
        self.apply(logits, self.batch, self.ids, bitmask)
        expected = bitmask.copy()
        for matcher in self.matchers:
            assert matcher.accept([TEXT[number]])
        return expected, logits


def run(rank: Rank) -> bool:
    """Return whether every step's logits were masked as the masks were filled."""
    steps = [rank.step(number) for number in range(STEPS)]
    torch.cuda.synchronize()
    return all(np.array_equal(_allowed(expected), (logits == 0).cpu().numpy()) for expected, logits in steps)


def _allowed(bitmask: np.ndarray) -> np.ndarray:
    return np.unpackbits(bitmask.view(np.uint8), axis=1, bitorder="little")[:, :VOCAB].astype(bool)


def test_a_device_that_is_behind_sees_every_mask() -> None:
    assert run(Rank())
