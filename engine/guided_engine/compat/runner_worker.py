"""The worker that vLLM is told to use: the platform's own, joined by guided decoding once it has a model."""

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

from vllm.distributed.parallel_state import get_pp_group
from vllm.platforms import current_platform
from vllm.tokenizers import cached_tokenizer_from_config
from vllm.utils.torch_utils import PIN_MEMORY

from guided_contract import config as pod_config
from guided_contract.config import PodConfig
from guided_contract.heartbeat import core_slot
from guided_contract.records import MatchersRestart
from guided_contract.wire import Backend, Hello, Load, Loaded, ServiceMessage, Unload
from guided_engine import last_words, ledger, versions
from guided_engine.compat import combination_check, cpu, draft_model, minor
from guided_engine.compat.runner import GuidedRunner
from guided_engine.compat.runner_reasoning import import_plugin, reasoner_factory
from guided_engine.compat.runner_v1 import RunnerV1
from guided_engine.compat.runner_v2 import RunnerV2
from guided_engine.compat.runner_vocabulary import EngineVocabulary
from guided_engine.cpus import Cpus
from guided_engine.matchers.beside import MatchersBeside
from guided_engine.matchers.bitmasks import MaskFiller
from guided_engine.matchers.loaded_grammars import LoadedGrammars
from guided_engine.matchers.matching import Matching, RankTraits
from guided_engine.matchers.memory import SharedMemory
from guided_engine.matchers.template import Made
from guided_engine.processors import registry
from guided_engine.processors.interface import Context
from guided_engine.processors.registry import Registry
from guided_engine.pulse import Pulse
from guided_engine.ranks.rank_guide import RankGuide
from guided_engine.service_link import ServiceLink
from guided_engine.telemetry import Telemetry
from guided_grammar.backend import BackendError, Threads
from guided_grammar.registry import Backends, fingerprints

if current_platform.is_cpu():
    from vllm.v1.worker.cpu_worker import CPUWorker as PlatformWorker
else:
    from vllm.v1.worker.gpu_worker import Worker as PlatformWorker

# More gain little, and other threads need CPUs, too.
_MOST_FILL_THREADS: Final = 4


class GuidedWorker(PlatformWorker):  # type: ignore[misc]  # vLLM is untyped here
    """One rank. Plain upstream where no configuration names our pod, or placement is Scheduler."""

    guided: GuidedRunner | None = None
    _matchers: MatchersBeside | None = None

    def __init__(self, vllm_config: Any, local_rank: int, rank: int, *args: Any, **kwargs: Any) -> None:
        """Fork the process of this rank's matchers first: later the rank has threads, and a device."""
        config = pod_config.load()
        if config is not None:
            import_plugin(vllm_config)
            if config.guided_decoding.placement == "Rank":
                self._matchers = _matchers(vllm_config, rank, config)
        super().__init__(vllm_config, local_rank, rank, *args, **kwargs)

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Load the model as upstream does, then wrap this worker's model runner.

        Raises
        ------
        guided_engine.processors.registry.FactoryError
            A configured logits processor cannot be made; the engine does not start.
        guided_engine.compat.combination_check.RefusedError
            The engine's settings do not go together; it does not start.
        """
        config = pod_config.load()
        if config is not None:
            # Before the weights, which take minutes.
            factories = [registry.check(processor) for processor in config.logits_processors]
            combination_check.check(self.vllm_config, factories)
        super().load_model(*args, **kwargs)
        if config is not None:
            if current_platform.is_cpu() and not self.use_v2_model_runner:
                cpu.spare_generators(self.model_runner)
            if self.use_v2_model_runner:
                draft_model.follow_steps(self.model_runner)
            self.guided = _join(self, config)

    def shutdown(self) -> None:
        """End the rank: factories of logits processors give back what they hold."""
        if self.guided is not None:
            self.guided.close()
        elif self._matchers is not None:
            self._matchers.close()
        super().shutdown()


def _noting(start: Callable[..., Any]) -> Callable[..., Any]:
    """Return a part of a worker's start that keeps why it failed."""

    @functools.wraps(start)
    def started(worker: Any, *args: Any, **kwargs: Any) -> Any:
        config = pod_config.load()
        with contextlib.nullcontext() if config is None else last_words.noted(config.failure_file):
            return start(worker, *args, **kwargs)

    return started


for _part in (
    "__init__",
    "init_device",
    "load_model",
    "determine_available_memory",
    "initialize_from_config",
    "compile_or_warm_up_model",
):
    setattr(GuidedWorker, _part, _noting(getattr(GuidedWorker, _part)))


def _join(worker: Any, config: PodConfig) -> GuidedRunner | None:
    """Start this rank's signs of life, and its guided decoding where it samples."""
    engine = worker.parallel_config.data_parallel_index
    pulse = Pulse(config.heartbeats_file, core_slot(engine, config.workers) + 1 + worker.rank)
    pulse.start()
    samples = get_pp_group().is_last_rank
    matchers = worker._matchers  # noqa: SLF001 - it is ours
    if not samples or matchers is None:
        if matchers is not None:
            matchers.close()
        ServiceLink(config.service_socket, lambda: _hello(worker, config, {}, samples=samples)).start()
        return None
    tokenizer = matchers.start()
    link = ServiceLink(
        config.service_socket,
        lambda: _hello(worker, config, tokenizer, samples=True),
        answer=functools.partial(_answer, matchers),
        lost=matchers.orphan,
    )
    vllm_config = worker.vllm_config
    rank = number(worker.parallel_config, worker.rank, config, samples=True)
    context = Context(vocab_size=vllm_config.model_config.get_vocab_size())
    if config.logits_processors:
        context = _context(vllm_config, Backends(EngineVocabulary(vllm_config)), worker.device, rank)
    guide = RankGuide(
        _traits(vllm_config, rank, config),
        matchers,
        Registry(config.logits_processors, context),
        Telemetry(config.telemetry_socket).send,
    )
    runner = worker.model_runner
    adapter = (RunnerV2 if worker.use_v2_model_runner else RunnerV1)(runner, guide)
    guided = GuidedRunner(runner, guide, adapter, pulse.step, link.send)
    link.start()
    return guided


def _matchers(vllm_config: Any, rank: int, config: PodConfig) -> MatchersBeside:
    """Fork what makes a rank's matchers; the vocabulary takes seconds, while the rank loads its weights."""
    drafts = vllm_config.num_speculative_tokens
    vocab_size = vllm_config.model_config.get_vocab_size()
    rows = vllm_config.scheduler_config.max_num_seqs * (1 + drafts)
    memory = SharedMemory(rows, vocab_size)
    threads = Threads(fill=_fill_threads(vllm_config.parallel_config))
    sampling_rank = number(vllm_config.parallel_config, rank, config, samples=True)

    def make() -> Made:
        vocabulary = EngineVocabulary(vllm_config)
        traits = _traits(vllm_config, sampling_rank, config)

        def start() -> tuple[Matching, LoadedGrammars]:
            backends = Backends(vocabulary, threads)
            loaded_grammars = LoadedGrammars(backends)
            filler = MaskFiller(rows, vocab_size, backends, memory.work)
            send = Telemetry(config.telemetry_socket).send
            return Matching(traits, loaded_grammars, filler, memory, send), loaded_grammars

        return Made(fingerprints(vocabulary), start)

    telemetry = Telemetry(config.telemetry_socket)
    return MatchersBeside(memory, make, lambda: telemetry.send(MatchersRestart(rank=sampling_rank)))


def _traits(vllm_config: Any, rank: int, config: PodConfig) -> RankTraits:
    return RankTraits(
        rank,
        vllm_config.model_config.get_vocab_size(),
        vllm_config.scheduler_config.async_scheduling,
        reasoner_factory(vllm_config),
        config.guided_decoding.compare_every if config.tensor_parallel > 1 else None,
        minor.mask_rows(vllm_config.num_speculative_tokens),
    )


def _context(vllm_config: Any, backends: Backends, device: Any, rank: int) -> Context:
    """Return what factories of logits processors are told."""
    model = vllm_config.model_config
    tokenizer = cached_tokenizer_from_config(model)
    texts, stop_tokens = _texts(backends, tokenizer, model.get_vocab_size())
    ends = model.try_get_generation_config().get("eos_token_id") or []
    return Context(
        vocab_size=model.get_vocab_size(),
        tokenizer=tokenizer,
        token_bytes=texts,
        stop_tokens=stop_tokens.union([ends] if isinstance(ends, int) else ends),
        device=str(device),
        rank=rank,
        vllm_config=vllm_config,
        is_pin_memory=PIN_MEMORY,
    )


def _texts(backends: Backends, tokenizer: Any, vocab_size: int) -> tuple[Sequence[bytes], frozenset[int]]:
    """Return each token's bytes, of special ones none, and what ends a text, by a library that knows them."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    special = {*tokenizer.all_special_ids, *(index for index, token in added.items() if token.special)}
    for name in backends:
        with contextlib.suppress(BackendError):
            tokens, stop_tokens = backends[name].tokens(), backends[name].stop_tokens
            known = min(len(tokens), vocab_size, tokenizer.max_token_id + 1)
            texts = [b"" if index in special else tokens[index] for index in range(known)]
            return texts + [b""] * (vocab_size - known), stop_tokens
    return (), frozenset()


def _fill_threads(parallel: Any) -> int:
    """Return this rank's share of the container's CPUs, as far as filling gains by it."""
    ranks_here = parallel.local_world_size * max(1, parallel.data_parallel_size_local)
    return min(_MOST_FILL_THREADS, Cpus.of_this_process().threads_per_rank(ranks_here))


def _answer(matchers: MatchersBeside, message: ServiceMessage) -> Loaded | None:
    match message:
        case Load():
            return matchers.load(message)
        case Unload():
            matchers.unload(message)
    return None


def number(parallel: Any, rank: int, config: PodConfig, *, samples: bool) -> int:
    """Return a worker's `rank` as in its Hello; `rank` is the engine's."""
    if not samples:
        return rank
    in_stage = rank % config.tensor_parallel
    return int(parallel.data_parallel_index * config.tensor_parallel + in_stage)


def _hello(worker: Any, config: PodConfig, tokenizer: dict[Backend, str], *, samples: bool) -> Hello:
    model_runner = "V2" if worker.use_v2_model_runner else "V1"
    speculative = worker.vllm_config.speculative_config
    return ledger.hello(
        "rank",
        rank=number(worker.parallel_config, worker.rank, config, samples=samples),
        samples=samples,
        versions={**versions.versions(), "modelRunner": model_runner},
        scheduling="Async" if worker.vllm_config.scheduler_config.async_scheduling else "Sync",
        speculation=speculative.method if speculative else "",
        tokenizer=tokenizer,
    )
