"""The wrapper around a model runner: guided rows alone are masked, and no fault of ours leaves it."""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from guided_contract import config as pod_config
from guided_contract.config import GuidedDecodingConfig, LogitsProcessorConfig, PodConfig
from guided_contract.names import TICKET_ARG
from guided_contract.wire import Failed, Hello, Load, Loaded
from guided_engine.compat.core import read_while_masks_are_made
from guided_engine.compat.runner import ENDS_ATTRIBUTE, INVALID_ATTRIBUTE, GuidedRunner
from guided_engine.compat.runner_v2 import RunnerV2
from guided_engine.cpus import Cpus
from guided_engine.processors.registry import FactoryError
from support.engine import pod_config as pod_for
from support.engine import wait_until
from support.fake_service import FakeService
from support.rank import VOCAB, A
from support.rank import Rank as Guided

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Masker:
    """Where vLLM's runner masks, for the first time a batch is so; remembers for whom."""

    def __init__(self) -> None:
        self.masked: list[tuple[list[str], int]] = []
        self.logits_indices, self.grammar_bitmask = torch.zeros(8), torch.zeros(8, VOCAB)
        self.mask_stride, self.copy_stream = 1, SimpleNamespace(wait_stream=lambda _other: None)

    def apply_grammar_bitmask(
        self, _logits: Any, _batch: Any, request_ids: list[str], bitmask: np.ndarray
    ) -> None:
        self.masked.append((list(request_ids), len(bitmask)))


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a mask be copied to no device, and applied by no kernel."""
    from vllm.v1.worker.gpu import structured_outputs

    kernel = type("Kernel", (), {"__getitem__": lambda _self, _grid: lambda *_arguments, **_constants: None})
    monkeypatch.setattr(structured_outputs, "_apply_grammar_bitmask_kernel", kernel())
    monkeypatch.setattr(structured_outputs, "async_tensor_h2d", lambda _data, *, out: out)
    stream = SimpleNamespace(wait_stream=lambda _other: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda _stream: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)


class Runner:
    """Runs a step as Model Runner V2 does, but for the model: every row samples an `a`."""

    def __init__(self, *, drafts: bool = False) -> None:
        self.vllm_config = SimpleNamespace(
            speculative_config=object() if drafts else None,
            scheduler_config=SimpleNamespace(async_scheduling=True),
        )
        self.structured_outputs_worker = Masker()
        self.batch_sharder = None
        self.execute_model_state: Any = None
        self.sampled_with: list[Any] = []
        self.drafts: Any = None
        self._sample = self._bookkeeping_sync = None  # what compat.cpu wraps in a V1 runner

    def execute_model(self, scheduled: Any, *, dummy_run: bool = False) -> None:
        self.execute_model_state = None if dummy_run else list(scheduled.num_scheduled_tokens)

    def sample_tokens(self, grammar_output: Any) -> Any:
        self.sampled_with.append(grammar_output)
        ids, self.execute_model_state = self.execute_model_state or [], None
        ends = np.arange(len(ids) + 1)
        batch = SimpleNamespace(
            req_ids=ids, cu_num_logits_np=ends, cu_num_logits=None, num_draft_tokens_per_req=None
        )
        if isinstance(getattr(grammar_output, "grammar_bitmask", None), np.ndarray):
            self.structured_outputs_worker.apply_grammar_bitmask(
                torch.zeros(len(ids), VOCAB),
                batch,
                grammar_output.structured_output_request_ids,
                grammar_output.grammar_bitmask,
            )
        return SimpleNamespace(
            copy_event=SimpleNamespace(synchronize=lambda: None),
            num_sampled_tokens_np=np.ones(len(ids), dtype=np.int32),
            sampled_token_ids=np.full((len(ids), 1), A),
            model_runner_output=SimpleNamespace(req_ids=ids),
        )

    def take_draft_token_ids(self) -> Any:
        return self.drafts


class Rank:
    """A runner in its wrapper, with a guide; requests whose name begins with g are guided."""

    def __init__(self, *, drafts: bool = False) -> None:
        guided = Guided()
        self.ticket = guided.load("a*b")
        self.guide, self.matchers = guided.guide, guided.matchers
        self.runner = Runner(drafts=drafts)
        self.masker = self.runner.structured_outputs_worker
        self.steps: list[None] = []
        self.told: list[Failed] = []
        adapter = RunnerV2(self.runner, self.guide)
        self.guided = GuidedRunner(
            self.runner, self.guide, adapter, lambda: self.steps.append(None), self.told.append
        )
        self.computed: dict[str, int] = {}

    def step(self, scheduled: Mapping[str, int], **plan: Any) -> Any:
        """Take a step, and return what reaches the engine core."""
        self.runner.execute_model(self.plan(scheduled, **plan))
        for request_id, count in scheduled.items():
            self.computed[request_id] = self.computed.get(request_id, 0) + count
        return self.runner.sample_tokens(None).model_runner_output

    def plan(
        self,
        scheduled: Mapping[str, int],
        new: Sequence[str] = (),
        prompt: int = 1,
        finished: Sequence[str] = (),
        drafts: Mapping[str, list[int]] | None = None,
    ) -> Any:
        cached = [request_id for request_id in scheduled if request_id not in new]
        return SimpleNamespace(
            scheduled_new_reqs=[self._new(request_id, [5] * prompt) for request_id in new],
            scheduled_cached_reqs=SimpleNamespace(
                req_ids=cached,
                num_computed_tokens=[self.computed[one] for one in cached],
                resumed_req_ids=(),
            ),
            finished_req_ids=set(finished),
            num_scheduled_tokens=dict(scheduled),
            scheduled_spec_decode_tokens=drafts or {},
            has_structured_output_requests=False,
            pending_structured_output_tokens=False,
            total_num_scheduled_tokens=sum(scheduled.values()),
        )

    def _new(self, request_id: str, tokens: list[int]) -> Any:
        is_guided = request_id.startswith("g")
        extra = {TICKET_ARG: {"key": self.ticket.key, "backend": self.ticket.backend}}
        params = SimpleNamespace(
            structured_outputs=SimpleNamespace(all_constraints_none=lambda: not is_guided),
            extra_args=extra if is_guided else None,
            all_stop_token_ids=set(),
            max_tokens=16,
            temperature=1.0,
        )
        return SimpleNamespace(
            req_id=request_id,
            sampling_params=params,
            prompt_token_ids=tokens,
            prompt_len=len(tokens),
            prefill_token_ids=tokens,
            num_computed_tokens=0,
        )


class TestGuidedRunner:
    def test_steps_in_which_no_guided_request_samples_are_vllms_own(self) -> None:
        """Before one has come, while its prompt is computed, and after it has gone; else its rows alone.

        InternLM/lmdeploy PR 4167: rows of unguided requests left uninitialised.
        """
        rank = Rank()
        rank.step({"u": 1}, new=["u"])
        rank.step({"u": 1, "g": 4}, new=["g"], prompt=8)
        assert rank.masker.masked == []
        rank.step({"u": 1, "g": 4})
        assert rank.masker.masked == [(["g"], 1)]
        rank.step({"u": 1}, finished=["g"])
        rank.step({"u": 1})
        assert rank.masker.masked == [(["g"], 1)]
        assert rank.guide.waits.total_ns > 0
        assert [each is None for each in rank.runner.sampled_with] == [True, True, False, True, True]

    def test_a_warm_up_is_no_step_and_has_vllms_masks(self) -> None:
        rank = Rank()
        rank.step({"g": 1}, new=["g"])
        rank.runner.execute_model(rank.plan({"g": 1}, ["g"]), dummy_run=True)
        rank.runner.sample_tokens("warm-up")
        assert rank.runner.sampled_with[1:] == ["warm-up"]
        assert len(rank.steps) == 1

    def test_which_drafts_are_invalid_is_written_beside_the_output(self) -> None:
        rank = Rank(drafts=True)
        rank.step({"g": 1}, new=["g"])
        rank.runner.drafts = SimpleNamespace(req_ids=["g"], draft_token_ids=[[A, 7]])
        output = rank.step({"g": 3}, drafts={"g": [-1, -1]})
        assert getattr(output, INVALID_ATTRIBUTE) == {"g": 1}

    @pytest.mark.parametrize(
        "where", ["begin", "settle", "take_draft_token_ids", "masks", "edits", "sampled", "ends"]
    )
    def test_a_fault_of_ours_ends_sequences_and_never_the_step(
        self, monkeypatch: pytest.MonkeyPatch, where: str
    ) -> None:
        rank = Rank(drafts=True)
        rank.step({"g": 1}, new=["g"])

        def fail(*_: Any) -> Any:
            raise RuntimeError(f"made to fail in {where}")

        with monkeypatch.context() as patch:
            patch.setattr(rank.guide if hasattr(rank.guide, where) else rank.runner, where, fail)
            outputs = [rank.step({"g": 1})]
        outputs.append(rank.step({"g": 1}))
        assert len(rank.runner.sampled_with) == 3
        ends = [getattr(output, ENDS_ATTRIBUTE, {}) for output in outputs]
        assert {"g": "sequence_matcher_failed"} in ends
        assert [(end.request_id, end.code) for end in rank.told] == [("g", "sequence_matcher_failed")]


@pytest.mark.parametrize("drafts", [False, True])
def test_an_engine_core_in_the_ranks_process_reads_a_step_while_the_next_ones_masks_are_made(
    *, drafts: bool
) -> None:
    """By vLLM's own step: it samples what waits for tokens once it has read them."""
    from vllm.v1.engine.core import EngineCore

    rank, done = Rank(drafts=drafts), []
    plans = iter([rank.plan({"g": 1}, new=["g"]), *({"g": 1} for _ in range(3))])

    def schedule(_throttles: Any) -> Any:
        plan = next(plans)
        rank.computed = {"g": rank.computed.get("g", 0) + 1}
        return rank.plan(plan) if isinstance(plan, dict) else plan

    def of(call: Callable[[Any], Any]) -> Callable[..., Any]:
        def called(given: Any, *, non_block: bool) -> Future[Any]:
            assert non_block
            done.append(call.__name__)
            future: Future[Any] = Future()
            future.set_result(call(given))
            return future

        return called

    def update_from_output(_scheduled: Any, _output: Any) -> dict[int, Any]:
        told = rank.matchers.matching._tracking.by_request["g"].accepted
        done.append(f"{len(told)} told" + (", asked" if rank.matchers.answers else ""))
        return {}

    core: Any = SimpleNamespace(
        batch_queue=deque(maxlen=2),
        batch_queue_size=2,
        scheduler=SimpleNamespace(
            has_requests=lambda: True,
            schedule=schedule,
            get_grammar_bitmask=lambda _scheduled: None,
            update_from_output=update_from_output,
        ),
        model_executor=SimpleNamespace(
            driver_worker=SimpleNamespace(worker=rank),
            execute_model=of(rank.runner.execute_model),
            sample_tokens=of(rank.runner.sample_tokens),
        ),
        is_mm_encoder_only=False,
        is_pooling_model=False,
        check_for_draft_tokens=drafts,
    )
    for ready in ("log_error_detail", "capture_iteration_details"):
        setattr(core, ready, lambda _scheduled: contextlib.nullcontext())
    for nothing in ("_should_throttle_prefills", "_process_aborts_queue"):
        setattr(core, nothing, lambda: None)
    for attach in ("_attach_iteration_details", "_attach_weight_version"):
        setattr(core, attach, lambda *_: None)
    read_while_masks_are_made(core)
    for _ in range(3):
        EngineCore.step_with_batch_queue(core)
    asked = "" if drafts else ", asked"  # else for the drafts, once these are known
    first, *reads = ["execute_model", "sample_tokens"], f"1 told{asked}", f"2 told{asked}"
    assert done == [*first, *(what for read in reads for what in ("execute_model", read, "sample_tokens"))]


class TestWorker:
    """GuidedWorker around a platform worker that has loaded nothing."""

    @pytest.fixture
    def load(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[PodConfig | None], Any]]:
        from guided_engine.compat import runner_worker

        made: list[Any] = []

        monkeypatch.setattr(runner_worker.PlatformWorker, "load_model", lambda _self: None)
        monkeypatch.setattr(runner_worker, "get_pp_group", lambda: SimpleNamespace(is_last_rank=True))
        # Reads more of vLLM's configuration than is played here: test_combinations has it.
        monkeypatch.setattr(runner_worker.combination_check, "check", lambda *_: None)

        def load_model(pod: PodConfig | None) -> Any:
            monkeypatch.setattr(pod_config, "load", lambda: pod)
            worker = object.__new__(runner_worker.GuidedWorker)
            worker.rank = 1
            worker.use_v2_model_runner = False
            worker.model_runner = Runner()
            worker.vllm_config = SimpleNamespace(
                model_config=SimpleNamespace(get_vocab_size=lambda: 64, max_model_len=64),
                scheduler_config=SimpleNamespace(max_num_seqs=2, async_scheduling=True),
                speculative_config=None,
                num_speculative_tokens=0,
                parallel_config=SimpleNamespace(
                    local_world_size=1, data_parallel_size_local=1, data_parallel_index=0
                ),
                structured_outputs_config=SimpleNamespace(reasoning_parser="", reasoning_parser_plugin=""),
            )
            worker.parallel_config = worker.vllm_config.parallel_config
            if pod is not None and pod.guided_decoding.placement == "Rank":
                worker._matchers = runner_worker._matchers(worker.vllm_config, worker.rank, pod)
                made.append(worker._matchers)
            worker.load_model()
            return worker

        yield load_model
        for matchers in made:
            matchers.close()

    def test_is_plain_upstream_outside_our_pods(self, load: Callable[[PodConfig | None], Any]) -> None:
        worker = load(None)
        assert worker.guided is None
        assert "execute_model" not in vars(worker.model_runner)

    def test_only_shows_itself_under_scheduler_placement(
        self, load: Callable[[PodConfig | None], Any], tmp_path: Path
    ) -> None:
        guided = GuidedDecodingConfig(placement="Scheduler")
        pod = pod_for(tmp_path, model="/nowhere", guided_decoding=guided, tensor_parallel=2)
        with FakeService(pod.service_socket) as service:
            worker = load(pod)
            hello = service.wait_for(Hello)
            assert (hello.role, hello.rank, hello.samples) == ("rank", 1, True)
            assert "execute_model" not in vars(worker.model_runner)

    def test_ranks_that_sample_are_numbered_over_all_engines(self, tmp_path: Path) -> None:
        from guided_engine.compat.runner_worker import number

        pod = pod_for(tmp_path, model="/nowhere", tensor_parallel=2, pipeline_parallel=2, data_parallel=2)
        engines = [SimpleNamespace(data_parallel_index=engine) for engine in range(2)]
        ranks = [SimpleNamespace(rank=rank, parallel_config=one) for one in engines for rank in range(4)]
        numbers = [number(one.parallel_config, one.rank, pod, samples=one.rank >= 2) for one in ranks]
        assert numbers == [0, 1, 0, 1, 0, 1, 2, 3]
        assert pod.sampling_ranks == 4

    def test_says_hello_and_loads_what_it_is_told(
        self, load: Callable[[PodConfig | None], Any], tmp_path: Path
    ) -> None:
        pod = pod_for(tmp_path, model="/nowhere")
        with FakeService(pod.service_socket) as service:
            worker = load(pod)
            hello = service.wait_for(Hello)
            assert hello.versions["modelRunner"] == "V1"
            assert hello.versions["vllm"]
            assert worker.model_runner.execute_model == worker.guided.execute_model
            wait_until(lambda: service.peers("rank"))
            service.peers("rank")[0].send(Load(key="k", backend="guidance", spec="no grammar"))
            assert service.wait_for(Loaded).error.startswith("BackendError: ")

    def test_fills_in_no_more_threads_than_its_share_of_the_quota(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As vLLM 49013: thread counts taken from the host, in a container with less."""
        from guided_engine.compat import runner_worker

        for quota, ranks, threads in ((None, 1, 4), (2.0, 1, 2), (6.0, 4, 1), (1.5, 1, 1), (16.0, 8, 2)):
            monkeypatch.setattr(runner_worker.Cpus, "of_this_process", lambda quota=quota: Cpus(64, quota))
            parallel = SimpleNamespace(local_world_size=ranks, data_parallel_size_local=1)
            assert runner_worker._fill_threads(parallel) == threads

    def test_a_factory_that_cannot_be_made_keeps_the_engine_from_starting(
        self, load: Callable[[PodConfig | None], Any], tmp_path: Path
    ) -> None:
        ours = "guided_engine.processors.no_repeat_ngram:NoRepeatNgram"
        for factory, why in (("nowhere:Class", "cannot import"), (ours, "refuses its parameters")):
            processor = LogitsProcessorConfig(name="p", factory=factory, params={"size": 0})
            with pytest.raises(FactoryError, match=why):
                load(pod_for(tmp_path, model="/nowhere", logits_processors=[processor]))
