"""What a step costs a rank of the matrix: fills, masks handed over, waits, drafts read; counted there."""

from collections.abc import Mapping
from typing import Any

from guided_contract import wire
from support.matrix_engine import generate
from support.matrix_requests import Request

LONG_TOKENS = 60


def costs(llm: Any, guided: Request, tickets: Mapping[str, wire.Ticket]) -> dict[str, list[dict[str, int]]]:
    """Return, by traffic, what each sampling rank did: "without" a guided request, then "beside" one."""
    unguided = [
        Request("a b a b a b\n", "none", "", LONG_TOKENS, params)
        for params in ({"ignore_eos": True}, {"ignore_eos": True, "temperature": 1.0, "seed": 7})
    ]
    llm.collective_rpc(watch)
    found = {}
    for name, requests in (("without", unguided), ("beside", [*unguided, guided])):
        before = llm.collective_rpc(counted)
        generate(llm, requests, tickets)
        after = llm.collective_rpc(counted)
        found[name] = [
            {what: now[what] - was[what] for what in now}
            for was, now in zip(before, after, strict=True)
            if now
        ]
    return found


def watch(worker: Any) -> None:
    """Begin to count what vLLM's runner is handed, what is read of it, and what its drafts are asked for."""
    guided = worker._guided
    if guided is None:
        return
    done = worker.costs = {"fills": 0, "rows": 0, "masks": 0, "waits": 0, "drafts": 0}
    sample, reader, learn = guided._sample_tokens, guided._adapter.reader, guided._guide.learn_drafts
    bitmasks = guided._guide._bitmasks
    fill = bitmasks.fill

    def filled(walks: Any, rows: int) -> Any:
        done["fills"] += 1
        done["rows"] += rows
        return fill(walks, rows)

    def sampled(masks: Any) -> Any:
        done["masks"] += masks is not None
        return sample(masks)

    def read_later(output: Any) -> Any:
        read = reader(output)

        def waited() -> Any:
            done["waits"] += 1
            return read()

        return waited

    def learned(*drafts: Any) -> None:
        done["drafts"] += 1
        learn(*drafts)

    guided._sample_tokens, guided._adapter.reader = sampled, read_later
    guided._guide.learn_drafts, bitmasks.fill = learned, filled


def counted(worker: Any) -> dict[str, int]:
    """Return what a rank has done so far; nothing for one that does not sample."""
    if worker._guided is None:
        return {}
    return {"steps": worker._guided._guide._step, **worker.costs}
