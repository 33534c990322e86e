"""A step's edits as Model Runner V2 applies them, on a GPU if there is one, else by Triton's interpreter.

`python -m` prints, for each seed, a JSON list of what differs from plain numpy, row by row, for steps that
are drawn.
"""

import json
import random
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

if not torch.cuda.is_available():
    import vllm.v1.worker.cpu.shm  # noqa: F401 - a CPU's memory counts as pinned


from guided_contract.errors import ErrorCode
from guided_engine.compat import edits_kernel
from guided_engine.compat.edits_v2 import EditsV2
from guided_engine.processors.edits import Edits
from guided_engine.processors.sequence import Prepared
from guided_engine.ranks.row_edits import step_edits

SLOTS, POSITIONS, VOCAB = 7, 4, 50
STEPS = 30
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def drawn(rng: random.Random, ids: range) -> Edits | None:
    """Return a row's edits: of each kind, also such as leave little or nothing."""
    some = sorted(rng.sample(ids, rng.choice([1, 2, 5, 20])))
    kind = rng.choice(["none", "add", "forbid", "first", "only", "all", "mixed"])
    if kind == "add":
        return Edits.add(some, np.array([rng.uniform(-5, 5) for _ in some], np.float32))
    if kind == "forbid":
        return Edits.forbid(some)
    if kind == "first":
        return Edits.forbid(ids[: rng.randint(1, len(ids))])
    if kind == "only":
        return Edits(np.array(some), np.array([rng.uniform(-5, 5) for _ in some]), is_only=True)
    if kind == "mixed":
        return Edits.add(some, np.array([rng.choice([1.5, -np.inf]) for _ in some], np.float32))
    return Edits.forbid(list(ids)) if kind == "all" else None


def expected(edits: Edits | None, row: np.ndarray) -> tuple[np.ndarray, bool]:
    """Return what becomes of a row, and whether it would have no token left."""
    after = row.copy()
    if edits is not None:
        if edits.is_only:
            after[:] = -np.inf
        for index, value in zip(edits.ids, edits.values, strict=True):
            after[index] = np.float32(row[index]) + np.float32(value)
    return (row, True) if edits is not None and np.isneginf(after).all() else (after, False)


def step(rng: random.Random, bridge: EditsV2, states: Any) -> list[str]:
    """Take one step; return what is wrong."""
    requests = rng.sample(sorted(states.req_id_to_index), rng.randint(1, SLOTS))
    counts = {name: rng.randint(1, POSITIONS) for name in requests}
    known = {name: rng.randint(1, counts[name]) for name in requests}
    prepared, wanted = {}, {}
    for name in requests:
        rows = [drawn(rng, range(VOCAB)) for _ in range(known[name])]
        if rng.random() < 0.7:
            prepared[name] = Prepared(rows)
            wanted.update({(name, place): row for place, row in enumerate(rows)})
    edits = step_edits(prepared) if prepared else None
    bridge.stage(edits, {name: [0] * (count - 1) for name, count in counts.items()})
    faults: set[tuple[str, int]] = set()
    wrong = []
    # In chunks, as the rejection sampler does with a large batch.
    cut = rng.randint(0, len(requests))
    for chunk in filter(None, (requests[:cut], requests[cut:])):
        rows = [(name, place) for name in chunk for place in range(counts[name])]
        before = (
            np.random.default_rng(rng.randrange(10**6)).normal(size=(len(rows), VOCAB)).astype(np.float32)
        )
        before[:, rng.sample(range(VOCAB), 20)] = -np.inf  # what a grammar forbids
        logits = torch.from_numpy(before.copy()).to(DEVICE)
        slots = [states.req_id_to_index[name] for name in chunk]
        context = SimpleNamespace(
            expanded_idx_mapping=torch.tensor(
                [states.req_id_to_index[name] for name, _ in rows], dtype=torch.int32, device=DEVICE
            ),
            expanded_local_pos=torch.tensor([place for _, place in rows], dtype=torch.int32, device=DEVICE),
            idx_mapping_np=np.array(slots),
        )
        bridge.apply(logits, context)
        for index, at in enumerate(rows):
            right, is_empty = expected(wanted.get(at), before[index])
            if is_empty:
                faults.add(at)
            if not np.array_equal(logits[index].cpu().numpy(), right):
                wrong.append(f"row {at}: {wanted.get(at)}")
    read = bridge.taken()
    # The next step begins before this one's output is read.
    bridge.stage(edits, {})
    bridge.taken()
    if DEVICE == "cuda":
        torch.cuda.synchronize()  # as the runner waits for the step's output
    told = read()
    first = dict(sorted(faults, reverse=True))
    right = {name: (place, ErrorCode.SEQUENCE_PROCESSOR_NO_TOKEN) for name, place in first.items()}
    return wrong if told == right else [*wrong, f"faults: {told}, not {right}"]


def differences(seed: int) -> list[str]:
    """Return what is wrong in the steps of a seed."""
    rng = random.Random(seed)
    edits_kernel._BLOCK = (8192, 16)[seed % 2]  # a row is one block, or four
    names = {f"request-{slot}": slot for slot in range(SLOTS)}
    states = SimpleNamespace(
        max_num_reqs=SLOTS,
        req_id_to_index=names,
        index_to_req_id={slot: name for name, slot in names.items()},
    )
    runner = SimpleNamespace(
        req_states=states,
        device=torch.device(DEVICE),
        num_speculative_steps=POSITIONS - 1,
        batch_sharder=None,
        vocab_size=VOCAB,
    )
    guide: Any = SimpleNamespace(has_processors=lambda _name: True)
    bridge = EditsV2(runner, guide)
    return [wrong for _ in range(STEPS) for wrong in step(rng, bridge, states)]


if __name__ == "__main__":
    for number in sys.argv[1:]:
        sys.stdout.write(json.dumps(differences(int(number))) + "\n")
