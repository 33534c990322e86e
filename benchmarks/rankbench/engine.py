"""One engine of the benchmark, `python -m rankbench.engine SPEC.json REPLIES`: real vLLM on a virtual GPU.

Reads a protocol.Run per line on its standard input, serves it, and writes a protocol.Served per line to the
file descriptor REPLIES. All requests of a batch are queued while the scheduler pauses, and their grammars
compiled; then all start in one step.
"""

import contextlib
import itertools
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from guided_contract import config as pod_config
from guided_contract import names
from guided_contract.config import LogitsProcessorConfig, PodConfig
from rankbench import on_gpu, processes
from rankbench.documents import SEQUENCES, TOKENS, Corpus
from rankbench.methods import drafts_by_method
from rankbench.on_gpu import Records
from rankbench.protocol import EngineSpec, Failed, Run, Served
from rankbench.tasks import Tasks
from rankbench.window import LEAD_IN, Report, Seen

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
        folder = Path(spec.folder)
        self._schemas: Mapping[str, Corpus | Records | Tasks] = {Records.name: Records()}
        if spec.sets == [Tasks.name]:
            self._schemas = {Tasks.name: Tasks()}
        elif spec.device != "gpu":
            corpora = {name: Corpus.load(name, Path(spec.corpora)) for name in spec.sets}
            self._schemas = corpora
        if self._is_virtual:
            documents = np.concatenate([corpora[name].tokens for name in spec.sets])
            np.save(folder / "documents.npy", documents)
            self._proposals = drafts_by_method(documents, spec.drafts)
        self._grammars: Any = None
        if spec.ours:
            self._grammars = _pod(spec, stack)
        self._llm = _llm(spec)
        self._core = self._llm.llm_engine.engine_core
        self._ids = itertools.count()

    def serve(self, run: Run) -> Served | Failed:
        """Serve one batch, or several that follow each other, and return what was measured."""
        if run.then:
            return self._serve_phases(run)
        params = self._params(run)
        self._core.call_utility("pause_scheduler", "keep", False)
        self._add(run, params)
        if self._is_virtual:
            self._llm.collective_rpc("rankbench_begin", args=(run.batch, run.steps, run.profile, run.method))
        self._settle()
        cpu_s = processes.cpu_s(os.getpid())
        start = time.perf_counter()
        self._core.call_utility("resume_scheduler")
        seen = self._answers()
        cpu_s = processes.cpu_s(os.getpid()) - cpu_s
        wall_s = time.perf_counter() - start
        tokens = sum(one.tokens for one in seen)
        token_s = [one.token_s for one in seen]
        if not self._is_virtual:
            accepted = [count for one in seen for count in one.accepted]
            return Served(
                tokens=tokens, cpu_s=cpu_s, wall_s=wall_s, token_s=token_s, accepted=accepted, ranks=[]
            )
        reports = [msgspec.convert(r, Report) for r in self._llm.collective_rpc("rankbench_report")]
        if failed := _ended_otherwise(seen):
            return failed
        if not reports[0].steps:
            return Failed(reason="the batch was not full for long enough")
        used = self._backends(run, params)
        return Served(
            tokens=tokens, cpu_s=cpu_s, wall_s=wall_s, token_s=token_s, backends=used, ranks=reports
        )

    def _serve_phases(self, run: Run) -> Served | Failed:
        """Serve batch after batch of a virtual GPU; grammars are known before the first begins."""
        phases = [msgspec.structs.replace(run, batch=batch, then=[]) for batch in (run.batch, *run.then)]
        prepared = [(phase, self._params(phase)) for phase in phases]
        self._llm.collective_rpc("rankbench_begin", args=(0, 0, "", run.method))
        self._settle()
        cpu_s = processes.cpu_s(os.getpid())
        start = time.perf_counter()
        seen: list[Seen] = []
        for phase, params in prepared:
            self._add(phase, params)
            seen += self._answers()
        wall_s = time.perf_counter() - start
        cpu_s = processes.cpu_s(os.getpid()) - cpu_s
        tokens, token_s = sum(one.tokens for one in seen), [one.token_s for one in seen]
        return _ended_otherwise(seen) or Served(
            tokens=tokens, cpu_s=cpu_s, wall_s=wall_s, token_s=token_s, ranks=[]
        )

    def _add(self, run: Run, params: Sequence[Any]) -> None:
        for sequence, one in enumerate(params):
            prompt = {"prompt_token_ids": self._prompt(run, sequence)}
            self._llm.llm_engine.add_request(str(next(self._ids)), prompt, one)

    def _answers(self) -> list[Seen]:
        """Wait for all that was asked."""
        engine = self._llm.llm_engine
        seen: dict[str, Seen] = {}
        while engine.has_unfinished_requests():
            for output in engine.step():
                seen.setdefault(output.request_id, Seen()).take(output.outputs[0])
        return list(seen.values())

    def _prompt(self, run: Run, sequence: int) -> list[int]:
        schemas = self._schemas[run.schemas]
        if isinstance(schemas, Tasks):
            known: list[int] = self._llm.get_tokenizer().encode(schemas.prompt(sequence))
            return known
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
                    # Unguided, the tiny model would end at once; a grammar's end is its own to choose.
                    # A task's answer ends by itself, guided or not.
                    ignore_eos=self._is_virtual or not (is_guided or run.schemas == Tasks.name),
                    detokenize=False,
                    structured_outputs=StructuredOutputsParams(json=schema) if is_guided else None,
                    extra_args=arguments,
                )
            )
        return made

    def _backends(self, run: Run, params: Sequence[Any]) -> dict[int, str]:
        """Return the library that makes the masks of each guided sequence."""
        return {
            sequence: (one.extra_args or {}).get(names.TICKET_ARG, {}).get("backend", run.backend)
            for sequence, one in enumerate(params)
            if one.structured_outputs is not None
        }

    def _document(self, run: Run, sequence: int) -> int:
        return self._spec.sets.index(run.schemas) * SEQUENCES + sequence

    def _length(self, run: Run, sequence: int) -> int:
        """Return how many tokens a sequence needs so that all of a batch end together, after the window."""
        if run.tokens:
            return run.tokens
        if not self._is_virtual:
            return run.steps
        steps = run.steps + 2 * LEAD_IN
        if not self._spec.drafts:
            return min(steps, TOKENS - 2)
        generated = 1
        right = self._proposals[run.method].right[self._document(run, sequence)]
        for _ in range(steps):
            generated += 1 + min(int(right[generated]), self._spec.scheduled)
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


def _ended_otherwise(seen: Sequence[Seen]) -> Failed | None:
    wrong = [one.end for one in seen if one.end != ("length", None)]
    if not wrong:
        return None
    return Failed(reason=f"{len(wrong)} of {len(seen)} requests ended otherwise: {wrong[0]}")


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
        drafts_by_load=spec.is_by_load,
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
        arguments["distributed_executor_backend"] = spec.executor
    if spec.drafts:
        # For each of a virtual GPU's methods: they differ in what they cost and in what they guess.
        arguments["speculative_config"] = {
            "method": "draft_model",
            "model": spec.draft_model or spec.model,
            "num_speculative_tokens": spec.drafts,
            **({"num_speculative_tokens_per_batch_size": spec.schedule} if spec.schedule else {}),
        }
        if spec.device == "cpu":
            arguments["per_request_spec_decode_metrics"] = "detailed"
            arguments["disable_log_stats"] = False
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
