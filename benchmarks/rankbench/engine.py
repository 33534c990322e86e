"""One engine of the benchmark, `python -m rankbench.engine SPEC.json REPLIES`: vLLM, its GPU real or virtual.

Reads a protocol.Run per line on its standard input, serves it, and writes a protocol.Served per line to the
file descriptor REPLIES. All requests of a batch are queued while the scheduler pauses, and their grammars
compiled; then all start in one step.
"""

import contextlib
import itertools
import os
import sys
import time
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from guided_contract import config as pod_config
from guided_contract import names
from guided_contract.config import LogitsProcessorConfig, PodConfig
from rankbench import documents, on_gpu, processes
from rankbench.documents import SEQUENCES, TOKENS, Corpus
from rankbench.drafts import drafts_by_method
from rankbench.on_gpu import Records
from rankbench.protocol import EngineSpec, Failed, Run, Served
from rankbench.window import LEAD_IN, Report

PROMPT_TOKENS: Final = 8
FIRST_DOCUMENT: Final = 16
_DRY: Final = LogitsProcessorConfig(name="dry", factory="guided_engine.processors.dry:Dry")
_QUIET_S: Final = 0.15
_QUIET_SHARE: Final = 0.1  # of a core
_SETTLE_TIMEOUT_S: Final = 900.0


class Engine:
    """A vLLM engine and what it is asked."""

    def __init__(self, spec: EngineSpec, stack: contextlib.ExitStack) -> None:
        self._spec = spec
        self._is_virtual = spec.device == "virtual"
        self._schemas: dict[str, Corpus | Records] = {Records.name: Records()}
        if self._is_virtual:
            corpora = {name: documents.corpus(name) for name in spec.sets}
            self._schemas.update(corpora)
            generated = np.concatenate([corpus.tokens for corpus in corpora.values()])
            np.save(Path(spec.folder) / "documents.npy", generated)
            self._proposals = drafts_by_method(generated, spec.drafts)
        self._grammars: Any = None
        if spec.ours:
            self._grammars = _pod(spec, stack)
        self._llm = _llm(spec)
        self._core = self._llm.llm_engine.engine_core
        self._ids = itertools.count()

    def serve(self, run: Run) -> Served | Failed:
        """Serve one batch and return what was measured."""
        params = self._params(run)
        self._core.call_utility("pause_scheduler", "keep", False)
        for sequence, one in enumerate(params):
            prompt = {"prompt_token_ids": self._prompt(run, sequence)}
            self._llm.llm_engine.add_request(str(next(self._ids)), prompt, one)
        if self._is_virtual:
            self._llm.collective_rpc("rankbench_begin", args=(run.batch, run.steps, run.profile, run.method))
        self._settle()
        cpu_s = processes.cpu_s(os.getpid())
        start = time.perf_counter()
        self._core.call_utility("resume_scheduler")
        answers = self._answers()
        cpu_s = processes.cpu_s(os.getpid()) - cpu_s
        wall_s = time.perf_counter() - start
        served = Served(tokens=sum(len(one.token_ids) for one in answers), cpu_s=cpu_s, wall_s=wall_s)
        if not self._is_virtual:
            return served
        reports = [msgspec.convert(r, Report) for r in self._llm.collective_rpc("rankbench_report")]
        ends = [(one.finish_reason, one.stop_reason) for one in answers]
        if wrong := [end for end in ends if end != ("length", None)]:
            return Failed(reason=f"{len(wrong)} of {len(ends)} requests ended otherwise: {wrong[0]}")
        if not reports[0].steps:
            return Failed(reason="the batch was not full for long enough")
        return msgspec.structs.replace(
            served,
            window=reports[0],
            lost_drafts=sum(report.lost_drafts for report in reports),
            forbidden=sum(report.forbidden for report in reports),
        )

    def _answers(self) -> list[Any]:
        """Wait for all that was asked."""
        engine = self._llm.llm_engine
        last: dict[str, Any] = {}
        while engine.has_unfinished_requests():
            last |= {output.request_id: output.outputs[0] for output in engine.step()}
        return list(last.values())

    def _prompt(self, run: Run, sequence: int) -> list[int]:
        # On a virtual GPU the first token says what is generated.
        first = FIRST_DOCUMENT + (self._document(run, sequence) if self._is_virtual else sequence)
        return [first, *range(100, 99 + PROMPT_TOKENS)]

    def _params(self, run: Run) -> list[Any]:
        from vllm import SamplingParams  # noqa: PLC0415 - loaded by now
        from vllm.sampling_params import StructuredOutputsParams  # noqa: PLC0415 - as above

        corpus = self._schemas[run.schemas]
        # Spread over the batch, not its first part.
        guided = [int((n + 1) * run.share) > int(n * run.share) for n in range(run.batch)]
        schemas = [corpus.schema(n) for n in range(run.batch)]
        tickets: list[Any] = [None] * run.batch
        if self._grammars is not None and run.backend != "none" and any(guided):
            tickets = self._grammars.tickets(schemas, run.backend)
        made = []
        for sequence, schema in enumerate(schemas):
            is_guided = guided[sequence] and run.backend != "none"
            arguments = None
            if is_guided and tickets[sequence] is not None:
                arguments = {names.TICKET_ARG: msgspec.to_builtins(tickets[sequence])}
            made.append(
                SamplingParams(
                    temperature=0.0,
                    max_tokens=self._length(run, sequence),
                    # Unguided, random weights might end at once; a grammar's end is its own to choose.
                    ignore_eos=self._is_virtual or not is_guided,
                    detokenize=False,
                    structured_outputs=StructuredOutputsParams(json=schema) if is_guided else None,
                    extra_args=arguments,
                )
            )
        return made

    def _document(self, run: Run, sequence: int) -> int:
        return self._spec.sets.index(run.schemas) * SEQUENCES + sequence

    def _length(self, run: Run, sequence: int) -> int:
        """Return how many tokens a sequence needs so that all of a batch end together, after the window."""
        if not self._is_virtual:
            return run.steps
        steps = run.steps + 2 * LEAD_IN
        if not self._spec.drafts:
            return min(steps, TOKENS - 2)
        generated = 1
        right = self._proposals[run.method].right[self._document(run, sequence)]
        for _ in range(steps):
            generated += 1 + int(right[generated])
            if generated >= TOKENS - 10:
                raise ValueError("the documents are too short for so many steps")
        return generated

    def _settle(self) -> None:
        """Wait until what was queued is compiled: no process of this engine uses its CPU any more."""
        deadline = time.monotonic() + _SETTLE_TIMEOUT_S
        before = processes.cpu_s(os.getpid())
        while time.monotonic() < deadline:
            time.sleep(_QUIET_S)
            now = processes.cpu_s(os.getpid())
            if now - before < _QUIET_SHARE * _QUIET_S:
                return
            before = now
        raise TimeoutError("the engine does not come to rest")


def _pod(spec: EngineSpec, stack: contextlib.ExitStack) -> Any:
    """Write the pod's configuration and stand in for its sidecar."""
    from rankbench.grammars import Grammars, Ranks  # noqa: PLC0415 - not for upstream's engines

    folder = Path(spec.folder)
    pod = PodConfig(
        name="bench",
        model=spec.model,
        tokenizer=spec.model,
        served_name="bench",
        run_dir=str(folder),
        tensor_parallel=spec.tensor_parallel,
        logits_processors=[_DRY] if spec.has_dry else [],
    )
    (folder / "config.json").write_bytes(pod_config.encode(pod))
    os.environ[names.ENV_CONFIG] = str(folder / "config.json")
    return Grammars(pod, stack.enter_context(Ranks(pod.service_socket, spec.tensor_parallel)))


def _llm(spec: EngineSpec) -> Any:
    from vllm import LLM  # noqa: PLC0415 - reads the environment

    arguments: dict[str, Any] = {}
    if spec.ours:
        arguments["worker_cls"] = "guided_engine.worker.GuidedWorker"
    if spec.tensor_parallel == 1:
        # As on a GPU; the CPU platform takes a process for the only rank, too.
        arguments["distributed_executor_backend"] = "uni"
    if spec.drafts:
        # For each of a virtual GPU's methods: they differ in what they cost and in what they guess.
        arguments["speculative_config"] = {
            "method": "draft_model",
            "model": spec.model,
            "num_speculative_tokens": spec.drafts,
        }
    if spec.device == "gpu":
        arguments |= on_gpu.arguments(spec)
    backend = "guidance" if spec.backend == "guidance" else "xgrammar"
    return LLM(
        spec.model,
        **{
            "dtype": "bfloat16",
            "tensor_parallel_size": spec.tensor_parallel,
            "async_scheduling": spec.is_async,
            "structured_outputs_config": {"backend": backend},
            "max_model_len": PROMPT_TOKENS + TOKENS + 64,
            "max_num_seqs": spec.max_batch,
            "max_num_batched_tokens": 16 * spec.max_batch,
            "num_gpu_blocks_override": 16 * spec.max_batch,
            "block_size": 128,
            "enable_prefix_caching": False,
            "enforce_eager": True,
            "disable_log_stats": True,
            "seed": 0,
            **arguments,
        },
    )


def main() -> None:
    """Serve until standard input ends."""
    spec = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=EngineSpec)
    with contextlib.ExitStack() as stack:
        replies = stack.enter_context(os.fdopen(int(sys.argv[2]), "wb", buffering=0))
        engine = Engine(spec, stack)
        replies.write(msgspec.json.encode("ready") + b"\n")
        for line in sys.stdin.buffer:
            served = engine.serve(msgspec.json.decode(line, type=Run))
            replies.write(msgspec.json.encode(served) + b"\n")


if __name__ == "__main__":
    main()
