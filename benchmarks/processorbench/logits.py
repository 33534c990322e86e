"""What a step's edits cost where the logits are: on a CPU as Model Runner V1 has them, and on a device."""

import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import numpy as np
import torch
import vocabulary
from vllm.sampling_params import SamplingParams
from vllm.v1.worker.gpu.buffer_utils import StagedWriteTensor, UvaBackedTensor
from vllm.v1.worker.gpu.sample.bad_words import BadWordsState
from vllm.v1.worker.gpu.sample.logit_bias import LogitBiasState

from guided_engine.compat.runner_v1 import RunnerV1
from guided_engine.processors.edits import Edits
from guided_engine.processors.sequence import Prepared
from guided_engine.ranks.row_edits import StepEdits, step_edits
from processorbench.cells import LOOP, Cell
from processorbench.rank import Rank, bridge

IDS: Final = 64  # of a row on the device
_LEAD_CYCLES: Final = 20_000_000  # for which a device is busy, so that what it is to do waits for it already
Way = Callable[[], object]


class _V1State(NamedTuple):
    """What V1's execute_model leaves behind, as far as edits need it."""

    logits: Any
    scheduler_output: Any


def on_cpu(rank: Rank, cell: Cell) -> dict[str, Way]:
    """Return ways to apply a rank's last edits to logits in a CPU's memory."""
    edits = rank.edits
    if edits is None:
        return {}
    count = 1 + cell.drafts
    logits = torch.randn(cell.batch * count, vocabulary.SIZE)
    drafts = dict.fromkeys(rank.names, [0] * cell.drafts)
    output = SimpleNamespace(scheduled_spec_decode_tokens=drafts)
    batch = SimpleNamespace(req_ids=rank.names)
    runner = SimpleNamespace(input_batch=batch, execute_model_state=_V1State(logits, output))
    adapter = RunnerV1(runner, rank.guide)
    firsts = {name: number * count for number, name in enumerate(rank.names)}
    ways: dict[str, Way] = {"ours": lambda: adapter.sample(lambda _: None, None, edits)}
    if len(edits.ids):
        ways[LOOP] = lambda: _loop(edits, firsts, logits)
    return ways


def on_device(cell: Cell, device: str) -> dict[str, Way]:
    """Return ways to change as many tokens of each row on a device: ours, and upstream's kernels."""
    rng = np.random.default_rng(0)
    count, names = 1 + cell.drafts, [f"r{number}" for number in range(cell.batch)]
    rows = cell.batch * count
    most = min(IDS, vocabulary.SIZE)
    ids = {name: np.sort(rng.choice(vocabulary.SIZE, most, replace=False)).astype(np.int32) for name in names}
    logits = torch.randn(rows, vocabulary.SIZE, device=device)
    integers = {"dtype": torch.int32, "device": device}
    slots = np.arange(cell.batch, dtype=np.int32)
    context: Any = SimpleNamespace(
        expanded_idx_mapping=torch.arange(cell.batch, **integers).repeat_interleave(count),
        idx_mapping=torch.arange(cell.batch, **integers),
        idx_mapping_np=slots,
        expanded_local_pos=torch.arange(count, **integers).repeat(cell.batch),
        input_ids=torch.zeros(rows, **integers),
        pos=torch.zeros(rows, **integers),
    )
    ours = bridge(SimpleNamespace(), names, cell, device)
    drafts = dict.fromkeys(names, [0] * cell.drafts)

    def way(edits: StepEdits | None) -> Way:
        def run() -> None:
            ours.stage(edits, drafts)
            ours.apply(logits, context)
            ours.taken()

        return run

    added = step_edits({name: Prepared([Edits.add(of, -0.5)] * count) for name, of in ids.items()})
    forbidden = step_edits({name: Prepared([Edits.forbid(of)] * count) for name, of in ids.items()})
    assert added is not None
    states = _states(cell, device)
    bias, words = LogitBiasState(None, states), BadWordsState(None, states)
    for slot, of in enumerate(ids.values()):
        bias.add_request(slot, SamplingParams(logit_bias=dict.fromkeys(of.tolist(), -0.5)))
        words.add_request(slot, SimpleNamespace(bad_words_token_ids=[[token] for token in of.tolist()]))
    for state in (bias, words):
        state.apply_staged_writes()
    firsts = {name: number * count for number, name in enumerate(names)}
    return {
        "ours, adding": way(added),
        "logit_bias": lambda: bias.apply(logits, context),
        "ours, forbidding": way(forbidden),
        "bad_words": lambda: words.apply(logits, context),
        LOOP: lambda: _loop(added, firsts, logits),
    }


def held_bytes(cell: Cell, device: str) -> int:
    """Return what the edits of a step can take on the device: all tensors there, made once."""
    made = bridge(SimpleNamespace(), [f"r{number}" for number in range(cell.batch)], cell, device)
    return sum(value.nbytes for value in vars(made).values() if isinstance(value, torch.Tensor))


def taken_us(way: Way, device: str) -> float:
    """Return the microseconds that something takes: a device's own, whenever the host asked for it."""
    if device == "cpu":
        start_ns = time.perf_counter_ns()
        way()
        return (time.perf_counter_ns() - start_ns) / 1e3
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(_LEAD_CYCLES)  # noqa: SLF001 - torch's own tests and benchmarks have no other way
    start.record()
    way()
    end.record()
    end.synchronize()
    return float(1e3 * start.elapsed_time(end))


def _states(cell: Cell, device: str) -> Any:
    """Return what upstream's processors read of a runner's requests, of which nothing was generated."""
    wide = StagedWriteTensor((cell.batch, 8), dtype=torch.int32, device=torch.device(device))
    return SimpleNamespace(
        device=torch.device(device),
        max_num_reqs=cell.batch,
        vocab_size=vocabulary.SIZE,
        prompt_len=UvaBackedTensor(cell.batch, dtype=torch.int32),
        total_len=StagedWriteTensor(cell.batch, dtype=torch.int32, device=torch.device(device)),
        all_token_ids=wide,
    )


def _loop(edits: StepEdits, firsts: Mapping[str, int], logits: Any) -> None:
    for name, offset, change in edits.each():
        ids = torch.tensor(change.ids, dtype=torch.int64, device=logits.device)
        values = torch.tensor(change.values, device=logits.device)
        logits[firsts[name] + offset].index_add_(0, ids, values)
