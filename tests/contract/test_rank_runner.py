"""The wrapper around a model runner: no fault of ours leaves it, and other steps are the runner's own."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from guided_contract import config as pod_config
from guided_contract.config import GuidedDecodingConfig, LogitsProcessorConfig, PodConfig
from guided_contract.names import TICKET_ARG
from guided_contract.wire import Failed, Hello, Load, Loaded
from guided_engine.compat.runner import (
    ENDS_ATTRIBUTE,
    INVALID_ATTRIBUTE,
    GuidedRunner,
)
from guided_engine.cpus import Cpus
from guided_engine.processors.registry import FactoryError
from guided_engine.ranks.mask_wait import Waits
from guided_engine.ranks.row_edits import StepEdits
from guided_engine.ranks.step import Masks, Plan, ReadFaults, ReadSampled
from support.engine import pod_config as pod_for
from support.engine import wait_until
from support.fake_service import FakeService

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


FAILED = Failed(request_id="r", code="sequence_matcher_failed", key="k")


class Runner:
    """As much of a model runner as the wrapper touches; remembers what it was called with."""

    def __init__(self, *, drafts: bool = False) -> None:
        self.vllm_config = SimpleNamespace(
            speculative_config=object() if drafts else None,
            scheduler_config=SimpleNamespace(async_scheduling=True),
        )
        self.execute_model_state: Any = None
        self.sampled_with: list[Any] = []
        self.drafts_taken = 0
        self._sample = self._bookkeeping_sync = None  # what compat.cpu wraps in a V1 runner

    def execute_model(self, scheduled: Any, *, dummy_run: bool = False) -> None:
        del dummy_run
        self.execute_model_state = scheduled

    def sample_tokens(self, grammar_output: Any) -> Any:
        self.sampled_with.append(grammar_output)
        self.execute_model_state = None
        return SimpleNamespace()

    def take_draft_token_ids(self) -> Any:
        self.drafts_taken += 1
        raise RuntimeError("no drafts")


class Guide:
    """A guide that raises in the methods named; it has one sequence, which samples, once one has arrived."""

    def __init__(self, *raising: str) -> None:
        self.raising = raising
        self.calls: list[str] = []
        self.waits = Waits()
        self.plans: list[Plan] = []
        self.is_empty = True
        self.failed = False
        self.invalid_drafts: dict[str, int] = {}
        self.scheduled_drafts: dict[str, list[int]] = {}
        self.bitmask: Any = "bits"

    @property
    def is_sampling(self) -> bool:
        return not self.is_empty

    has_factories = False

    def begin(self, plan: Plan) -> None:
        self.plans.append(plan)
        self.is_empty = False
        self._call("begin")

    def skip_step(self) -> None:
        self.calls.append("skip_step")

    def leave_step(self) -> None:
        self.left = len(self.calls)

    def settle(self) -> None:
        self._call("settle")

    def masks(self) -> Masks | None:
        self._call("masks")
        return Masks(["r"], self.bitmask, [0])

    def edits(self) -> StepEdits | None:
        self._call("edits")
        return None

    def sampled(self, _read: ReadSampled, _faults: ReadFaults) -> None:
        self._call("sampled")

    def ends(self) -> list[Failed]:
        self._call("ends")
        return [FAILED] if self.failed else []

    def fail_all(self) -> None:
        self.failed = True

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name in self.raising:
            raise RuntimeError(f"made to fail in {name}")


class Adapter:
    def reader(self, output: Any) -> ReadSampled:  # noqa: ARG002 - the interface's
        return list

    def carrier(self, output: Any) -> Any:
        return output

    def sample(
        self,
        original: Callable[[Any], Any],
        masks: Masks | None,
        edits: StepEdits | None,  # noqa: ARG002 - the interface's
    ) -> tuple[Any, ReadFaults]:
        return original(masks), dict


def scheduled(*, guided: bool) -> Any:
    constraint = SimpleNamespace(all_constraints_none=lambda: False) if guided else None
    ticket = {TICKET_ARG: {"key": "k", "backend": "guidance"}}
    params = SimpleNamespace(
        structured_outputs=constraint,
        extra_args=ticket,
        all_stop_token_ids={1},
        max_tokens=16,
        temperature=1.0,
    )
    new = SimpleNamespace(
        req_id="r",
        sampling_params=params,
        prompt_token_ids=[5],
        prompt_len=1,
        num_computed_tokens=0,
        prefill_token_ids=None,
    )
    return SimpleNamespace(
        scheduled_new_reqs=[new],
        scheduled_cached_reqs=SimpleNamespace(req_ids=[], num_computed_tokens=[], resumed_req_ids=[]),
        finished_req_ids=set(),
        num_scheduled_tokens={"r": 1},
        scheduled_spec_decode_tokens={},
        has_structured_output_requests=False,
    )


def wrap(runner: Runner, guide: Any, steps: list[None] | None = None) -> GuidedRunner:
    counted = steps if steps is not None else []
    return GuidedRunner(runner, guide, Adapter(), lambda: counted.append(None))


class TestGuidedRunner:
    def test_a_step_of_ours_is_masked_and_marked(self) -> None:
        runner, guide, steps = Runner(), Guide(), []
        wrap(runner, guide, steps)
        step = scheduled(guided=True)
        runner.execute_model(step)
        assert step.has_structured_output_requests
        output = runner.sample_tokens(None)
        assert guide.waits.total_ns > 0
        assert runner.sampled_with[0].request_ids == ["r"]
        assert guide.calls == ["begin", "settle", "masks", "edits", "sampled", "ends"]
        assert guide.plans[0].arrivals[0].ticket.key == "k"
        assert not hasattr(output, ENDS_ATTRIBUTE)
        assert len(steps) == 1

    def test_tokens_are_accepted_before_drafts_are_waited_for(self) -> None:
        runner, guide = Runner(drafts=True), Guide()
        runner.take_draft_token_ids = lambda: guide.calls.append("drafts")  # type: ignore[method-assign]
        wrap(runner, guide)
        runner.execute_model(scheduled(guided=True))
        runner.sample_tokens(None)
        assert guide.calls == ["begin", "settle", "drafts", "masks", "edits", "sampled", "ends"]

    def test_a_step_without_ours_costs_nothing(self) -> None:
        runner, guide = Runner(), Guide()
        wrap(runner, guide)
        step = scheduled(guided=False)
        runner.execute_model(step)
        runner.sample_tokens("upstream's own")
        assert guide.calls == ["skip_step"]
        assert runner.sampled_with == ["upstream's own"]
        assert not step.has_structured_output_requests

    def test_warming_up_is_not_a_step(self) -> None:
        runner, guide, steps = Runner(), Guide(), []
        wrap(runner, guide, steps)
        runner.execute_model(scheduled(guided=True), dummy_run=True)
        assert guide.calls == []
        assert steps == []

    def test_the_masks_of_a_warm_up_reach_their_kernel(self) -> None:
        runner, guide = Runner(), Guide()
        wrap(runner, guide)
        runner.execute_model(scheduled(guided=True), dummy_run=True)
        runner.sample_tokens("warm-up")
        assert runner.sampled_with == ["warm-up"]
        assert guide.calls == []

    def test_what_a_rank_gives_up_is_reported_beside_the_output(self) -> None:
        runner, guide, told = Runner(), Guide("masks"), []
        GuidedRunner(runner, guide, Adapter(), lambda: None, told.append)
        runner.execute_model(scheduled(guided=True))
        output = runner.sample_tokens(None)
        assert getattr(output, ENDS_ATTRIBUTE) == {"r": "sequence_matcher_failed"}
        assert told == [FAILED]

    def test_which_drafts_are_invalid_is_written_beside_the_output(self) -> None:
        runner, guide = Runner(drafts=True), Guide()
        wrap(runner, guide)
        guide.invalid_drafts = {"r": 2}
        runner.execute_model(scheduled(guided=True))
        output = runner.sample_tokens(None)
        assert getattr(output, INVALID_ATTRIBUTE) == {"r": 2}

    def test_masks_that_fail_are_made_once_more_for_what_has_failed(self) -> None:
        """For drafts that a rank which failed alone may not accept."""
        runner, guide = Runner(), Guide("masks")
        wrap(runner, guide)
        runner.execute_model(scheduled(guided=True))
        fail = guide.fail_all

        def fail_all() -> None:
            fail()
            guide.raising = ()

        guide.fail_all = fail_all  # type: ignore[method-assign]
        runner.sample_tokens(None)
        assert runner.sampled_with[0].request_ids == ["r"]

    @pytest.mark.parametrize("where", ["begin", "settle", "masks", "edits", "sampled", "ends"])
    def test_a_fault_of_ours_ends_sequences_and_never_the_step(self, where: str) -> None:
        runner, guide = Runner(drafts=True), Guide(where)
        wrap(runner, guide)
        runner.execute_model(scheduled(guided=True))
        output = runner.sample_tokens(None)
        assert len(runner.sampled_with) == 1
        assert guide.failed
        if where != "ends":
            assert getattr(output, ENDS_ATTRIBUTE) == {"r": "sequence_matcher_failed"}


class TestWorker:
    """GuidedWorker around a platform worker that has loaded nothing."""

    @pytest.fixture
    def load(self, monkeypatch: pytest.MonkeyPatch) -> Callable[[PodConfig | None], Any]:
        from guided_engine.compat import runner_worker

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
                parallel_config=SimpleNamespace(local_world_size=1, data_parallel_size_local=1),
                structured_outputs_config=SimpleNamespace(reasoning_parser="", reasoning_parser_plugin=""),
            )
            worker.parallel_config = SimpleNamespace(data_parallel_index=0)
            worker.load_model()
            return worker

        return load_model

    def test_is_plain_upstream_outside_our_pods(self, load: Callable[[PodConfig | None], Any]) -> None:
        worker = load(None)
        assert worker._guided is None
        assert "execute_model" not in vars(worker.model_runner)

    def test_only_shows_itself_under_scheduler_placement(
        self, load: Callable[[PodConfig | None], Any], tmp_path: Path
    ) -> None:
        pod = pod_for(
            tmp_path,
            model="/nowhere",
            guided_decoding=GuidedDecodingConfig(placement="Scheduler"),
            tensor_parallel=2,
        )
        with FakeService(pod.service_socket) as service:
            worker = load(pod)
            hello = service.wait_for(Hello)
            assert (hello.role, hello.rank, hello.samples) == ("rank", 1, True)
            assert worker._guided is None
            assert "execute_model" not in vars(worker.model_runner)

    def test_ranks_that_sample_are_numbered_over_all_engines(self, tmp_path: Path) -> None:
        from guided_engine.compat.runner_worker import number

        pod = pod_for(tmp_path, model="/nowhere", tensor_parallel=2, pipeline_parallel=2, data_parallel=2)
        numbers = [
            number(
                SimpleNamespace(rank=rank, parallel_config=SimpleNamespace(data_parallel_index=engine)),
                pod,
                samples=rank >= 2,
            )
            for engine in range(2)
            for rank in range(4)
        ]
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
            assert worker.model_runner.execute_model == worker._guided.execute_model
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
        wrong = [
            ("nowhere:Class", {}, "cannot import"),
            ("guided_engine.processors.no_repeat_ngram:Absent", {}, "has no Absent"),
            ("guided_engine.processors.interface:SequenceInfo", {}, "no ProcessorFactory"),
            ("guided_engine.processors.no_repeat_ngram:NoRepeatNgram", {"size": 0}, "refuses its parameters"),
            (
                "guided_engine.processors.no_repeat_ngram:NoRepeatNgram",
                {"colour": 1},
                "refuses its parameters",
            ),
        ]
        for factory, params, why in wrong:
            processor = LogitsProcessorConfig(name="p", factory=factory, params=params)
            with pytest.raises(FactoryError, match=why):
                load(pod_for(tmp_path, model="/nowhere", logits_processors=[processor]))
