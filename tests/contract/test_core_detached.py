"""The engine core's changes in the installed vLLM's own scheduler; the model runner answers by script."""

import inspect
import pickle
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from devtools import tinymodel

from guided_contract import names
from guided_contract.config import PodConfig
from guided_contract.heartbeat import Heartbeats, core_slot
from guided_contract.wire import Hello, Ticket
from guided_engine.compat import core, cpu, runner
from guided_engine.compat.runner import ENDS_ATTRIBUTE
from guided_engine.ranks.tickets import ticket_of
from support.engine import pod_config, wait_until
from support.fake_service import FakeService
from support.scheduler import TICKET, Core, change_core

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def pod(tmp_path: Path) -> PodConfig:
    return pod_config(tmp_path, model="/nowhere")


@pytest.fixture
def _patched(monkeypatch: pytest.MonkeyPatch, pod: PodConfig) -> None:
    change_core(monkeypatch, pod)


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def running(request: pytest.FixtureRequest, _patched: None) -> Core:
    return Core(is_async=request.param)


class TestDetached:
    def test_the_ticket_tells_the_ranks_what_the_core_was_told_of_reasoning(self, running: Core) -> None:
        running.add("plain")
        running.add("told", reasoning_ended=False, reasoning_parser_kwargs={"chat_template_kwargs": {"a": 1}})
        plain, told = running.scheduler.schedule().scheduled_new_reqs
        assert plain.sampling_params.extra_args == TICKET
        assert ticket_of(told.sampling_params.extra_args) == Ticket(
            key="k",
            backend="xgrammar",
            reasoning_ended=False,
            reasoning_arguments={"chat_template_kwargs": {"a": 1}},
        )
        assert list(TICKET[names.TICKET_ARG]) == ["key", "backend"]  # other requests share it

    def test_an_admitted_request_is_scheduled_at_once_without_a_grammar(self, running: Core) -> None:
        request = running.add("r")
        assert not request.use_structured_output
        scheduled = running.scheduler.schedule()
        assert list(scheduled.num_scheduled_tokens) == ["r"]
        assert not scheduled.has_structured_output_requests
        assert not scheduled.pending_structured_output_tokens
        assert running.scheduler.get_grammar_bitmask(scheduled) is None
        (new,) = scheduled.scheduled_new_reqs
        assert new.sampling_params.structured_outputs.regex == "a+"  # the ranks still see what it is
        assert running.take(scheduled)["r"].new_token_ids == [9]

    def test_one_without_a_ticket_ends_and_never_generates(self, running: Core) -> None:
        running.add("r", ticket=False)
        running.add("s")
        outputs = running.step()
        assert outputs["r"].finish_reason.name == "ERROR"
        assert outputs["r"].stop_reason == "request_not_admitted"
        assert outputs["r"].new_token_ids == []
        assert outputs["s"].new_token_ids == [9]
        assert not running.scheduler.requests.get("r")

    @pytest.mark.parametrize("asked", ["constraint", "name"])
    def test_what_a_later_part_of_streaming_input_asks_for_reaches_ranks_without_a_ticket(
        self, running: Core, asked: str
    ) -> None:
        """They end it; admission saw the first part alone."""
        running.add("r", guided=False, ticket=False, resumable=True)
        running.step(token=1)  # the end of sequence: it waits for the next part
        later = {"constraint": {"guided": True}, "name": {"guided": False, "extra": {"guided_grammar": "g"}}}
        running.add("r", ticket=False, resumable=True, **later[asked])
        [new] = running.scheduler.schedule().scheduled_new_reqs
        assert runner._is_guided(new.sampling_params)
        assert ticket_of(new.sampling_params.extra_args) is None

    def test_a_malformed_ticket_is_none(self, running: Core) -> None:
        from vllm import SamplingParams

        request = running.add("s", guided=False)
        assert request.status.name == "WAITING"
        params = SamplingParams(extra_args={names.TICKET_ARG: {"key": 7}})
        from guided_engine.ranks.tickets import ticket_of

        assert ticket_of(params.extra_args) is None

    def test_an_unguided_request_is_left_alone(self, running: Core) -> None:
        running.add("r", guided=False, ticket=False)
        assert running.step()["r"].new_token_ids == [9]


class TestEnds:
    def test_one_sequence_ends_alone_without_the_steps_token(self, running: Core) -> None:
        for request_id in ("r", "s"):
            running.add(request_id)
        running.step()
        outputs = running.step({"r": "sequence_token_rejected"})
        assert outputs["r"].finish_reason.name == "ERROR"
        assert outputs["r"].stop_reason == "sequence_token_rejected"
        assert outputs["r"].new_token_ids == []
        assert outputs["s"].finish_reason is None
        assert outputs["s"].new_token_ids == [9]
        assert set(running.step()) == {"s"}

    def test_the_cache_of_an_ended_one_is_free_again(self, running: Core) -> None:
        free = running.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        running.add("r")
        running.step({"r": "sequence_dead_end"})
        running.step()
        assert running.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == free
        assert not running.scheduler.has_unfinished_requests()

    def test_one_that_has_ended_meanwhile_is_left_alone(self, running: Core) -> None:
        running.add("r")
        running.step(token=1)  # the end of sequence
        assert running.step({"r": "sequence_dead_end", "unknown": "sequence_dead_end"}) == {}

    @pytest.mark.usefixtures("_patched")
    def test_a_step_in_flight_of_an_ended_one_is_dropped(self) -> None:
        running = Core(is_async=True)
        running.add("r")
        first, second = running.scheduler.schedule(), running.scheduler.schedule()
        assert running.take(first, {"r": "sequence_dead_end"})["r"].stop_reason == "sequence_dead_end"
        assert running.take(second) == {}

    def test_a_failing_one_may_ask_for_prompt_logprobs(self, running: Core) -> None:
        from vllm.v1.outputs import LogprobsTensors, ModelRunnerOutput

        running.add("r", prompt_logprobs=1)
        scheduled = running.scheduler.schedule()
        output = ModelRunnerOutput(
            req_ids=["r"],
            req_id_to_index={"r": 0},
            sampled_token_ids=[[9]],
            prompt_logprobs_dict={"r": LogprobsTensors.empty_cpu(2, 2)},
        )
        setattr(output, ENDS_ATTRIBUTE, {"r": "sequence_dead_end"})
        (client,) = running.scheduler.update_from_output(scheduled, output).values()
        assert [one.stop_reason for one in client.outputs] == ["sequence_dead_end"]

    def test_the_word_survives_the_way_to_the_engine_core(self) -> None:
        from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput

        output = ModelRunnerOutput(req_ids=["r"], req_id_to_index={"r": 0})
        setattr(output, ENDS_ATTRIBUTE, {"r": "sequence_dead_end"})
        assert getattr(pickle.loads(pickle.dumps(output)), ENDS_ATTRIBUTE) == {"r": "sequence_dead_end"}
        assert not hasattr(EMPTY_MODEL_RUNNER_OUTPUT, ENDS_ATTRIBUTE)


class IdleScheduler:
    """As much of a scheduler as its signs of life need."""

    def __init__(self) -> None:
        self.unfinished = 0

    def get_num_unfinished_requests(self) -> int:
        return self.unfinished

    def update_from_output(self, _scheduled: Any, _output: Any) -> str:
        return "outputs"


class Scheduled:
    """A step of so many tokens."""

    num_spec_tokens_to_schedule = 0

    def __init__(self, tokens: int) -> None:
        self.total_num_scheduled_tokens = tokens


@pytest.fixture
def engine_core(
    monkeypatch: pytest.MonkeyPatch, pod: PodConfig
) -> Iterator[tuple[Any, FakeService, Heartbeats]]:
    from vllm.v1.engine.core import DPEngineCoreProc, EngineCoreProc

    # Restored afterwards; with the loop itself empty, what was wrapped around it remains.
    for process in (EngineCoreProc, DPEngineCoreProc):
        monkeypatch.setattr(process, "run_busy_loop", lambda _self: None)
    core.show_presence(pod)
    engine = object.__new__(EngineCoreProc)
    engine.scheduler = IdleScheduler()
    engine.vllm_config = SimpleNamespace(parallel_config=SimpleNamespace(data_parallel_index=1))
    heartbeats = Heartbeats.create(pod.heartbeats_file)
    with FakeService(pod.service_socket) as service:
        engine.run_busy_loop()
        yield engine, service, heartbeats
    heartbeats.close()


def test_the_engine_core_says_hello_beats_and_counts_its_steps(
    engine_core: tuple[Any, FakeService, Heartbeats],
) -> None:
    engine, service, heartbeats = engine_core
    hello = service.wait_for(Hello)
    assert (hello.role, hello.rank, hello.unsupported) == ("core", None, "")
    assert hello.versions["vllm"]
    wait_until(lambda: heartbeats.read(core_slot(1, 1)).pid == hello.pid)
    engine.scheduler.unfinished = 3
    assert engine.scheduler.update_from_output(Scheduled(5), None) == "outputs"
    engine.scheduler.update_from_output(Scheduled(0), None)  # nothing ran
    wait_until(lambda: heartbeats.read(core_slot(1, 1)).busy == 3)
    assert heartbeats.read(core_slot(1, 1)).steps == 1


class TestCpu:
    @pytest.fixture(autouse=True)
    def _restored(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from vllm.platforms import current_platform
        from vllm.utils import cpu_triton_utils
        from vllm.v1.sample.ops import topk_topp_sampler

        platform = type(current_platform)
        monkeypatch.setattr(platform, "check_and_update_config", platform.__dict__["check_and_update_config"])
        monkeypatch.setattr(cpu_triton_utils, "_expand_kernel_impl", cpu_triton_utils._expand_kernel_impl)
        monkeypatch.setattr(topk_topp_sampler, "apply_top_k_only", topk_topp_sampler.apply_top_k_only)

    @pytest.mark.parametrize("asked_for", [True, False])
    def test_async_scheduling_stays_as_asked_for(self, pod: PodConfig, *, asked_for: bool) -> None:
        from vllm.engine.arg_utils import EngineArgs

        cpu.keep_settings(pod)
        model = str(tinymodel.models() / "tiny")
        config = EngineArgs(model=model, max_model_len=64, async_scheduling=asked_for).create_engine_config()
        assert config.scheduler_config.async_scheduling is asked_for

    @pytest.mark.parametrize(
        ("binding", "threads", "method"),
        [("nobind", "1", "fork"), ("nobind", "2", "spawn"), ("0|1", "1", "spawn"), (None, None, "spawn")],
    )
    def test_ranks_are_forked_where_they_have_no_threads_of_their_own(
        self,
        pod: PodConfig,
        monkeypatch: pytest.MonkeyPatch,
        binding: str | None,
        threads: str | None,
        method: str,
    ) -> None:
        from vllm.engine.arg_utils import EngineArgs
        from vllm.utils.system_utils import get_mp_context

        monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "")  # restored afterwards
        for name, value in {"VLLM_CPU_OMP_THREADS_BIND": binding, "OMP_NUM_THREADS": threads}.items():
            monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name, raising=False)
        cpu.keep_settings(pod)
        EngineArgs(model=str(tinymodel.models() / "tiny"), max_model_len=64).create_engine_config()
        assert get_mp_context().get_start_method() == method

    def test_vllm_itself_refuses_stages_with_async_scheduling_on_v1(
        self, pod: PodConfig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from vllm.engine.arg_utils import EngineArgs

        monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", "0")
        cpu.keep_settings(pod)
        asked = EngineArgs(
            model=str(tinymodel.models() / "tiny"),
            max_model_len=64,
            pipeline_parallel_size=2,
            distributed_executor_backend="mp",
            async_scheduling=True,
        )
        with pytest.raises(ValueError, match="pipeline parallelism with async scheduling"):
            asked.create_engine_config()

    @pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
    def test_expanding_reaches_the_caller_for_every_dtype(self, pod: PodConfig, dtype: str) -> None:
        import torch
        from vllm.utils import cpu_triton_utils

        cpu.mend_kernels(pod)
        kind = getattr(torch, dtype)
        output = torch.zeros(6, dtype=kind)
        totals = torch.tensor([2, 2, 5, 6], dtype=torch.int32)
        values: Sequence[float] = [3, 4, -1, 7]
        cpu_triton_utils._expand_kernel_impl(output, torch.tensor(values, dtype=kind), totals, -1, 1)
        assert output.tolist() == [3, 3, 1, 1, 1, 7]

    def test_upstream_still_loses_them(self) -> None:
        """When this fails, the ledger's entry cpu-kernels can shrink."""
        import torch
        from vllm.utils import cpu_triton_utils
        from vllm.v1.sample import rejection_sampler  # noqa: F401 - loads the native kernels

        output = torch.zeros(3)
        totals = torch.tensor([1, 3], dtype=torch.int32)
        cpu_triton_utils._expand_kernel_impl(output, torch.tensor([0.25, 0.5]), totals, 0, 1)
        assert output.tolist() != [0.25, 0.5, 0.5]

    def test_top_k_of_no_rows_is_none(self, pod: PodConfig) -> None:
        import torch
        from vllm.v1.sample.ops import topk_topp_sampler as sampler

        logits, no_k = torch.zeros(0, 8), torch.zeros(0, dtype=torch.int32)
        with pytest.raises(RuntimeError, match="numel"):  # else the ledger's entry can go
            sampler.apply_top_k_top_p(logits, no_k, None)
        cpu.mend_kernels(pod)
        assert sampler.apply_top_k_top_p(logits, no_k, None).shape == (0, 8)
        (row,) = sampler.apply_top_k_top_p(torch.arange(8.0)[None], torch.tensor([2]), None).isfinite()
        assert row.tolist() == [False] * 6 + [True] * 2

    def test_a_discarded_row_draws_nothing_of_its_own_and_the_others_do(self) -> None:
        import torch

        class Runner:
            """Samples by each row's generator, and keeps books as vLLM's V1 runner does."""

            def __init__(self) -> None:
                generators = {row: torch.Generator().manual_seed(row) for row in (0, 2)}
                self.input_batch = SimpleNamespace(num_reqs=3, generators=generators)
                self.discard_request_mask = SimpleNamespace(np=np.array([False, True, True, True]))

            def sample_tokens(self) -> None:
                generators = self.input_batch.generators
                for generator in generators.values():
                    torch.rand(1, generator=generator)
                for row in (1, 2):
                    if (discarded := generators.get(row)) is not None:
                        discarded.set_offset(discarded.get_offset() - 4)

        with pytest.raises(RuntimeError, match="CPU Generator does not use offset"):
            Runner().sample_tokens()
        runner = Runner()
        cpu.spare_generators(runner)
        runner.sample_tokens()
        found = {
            row: one.get_state().equal(torch.Generator().manual_seed(row).get_state())
            for row, one in runner.input_batch.generators.items()
        }
        assert found == {0: False, 2: True}

    def test_upstream_still_sets_back_an_offset(self) -> None:
        """When this fails, look whether the ledger's entry cpu-seeds-in-chunks can go."""
        from vllm.v1.worker.gpu_model_runner import GPUModelRunner

        assert "gen.set_offset(gen.get_offset() - 4)" in inspect.getsource(GPUModelRunner._bookkeeping_sync)


def test_the_ledgers_modules_load_no_grammar_library() -> None:
    """The API server and the launcher import them too."""
    code = (
        "import sys; from guided_engine.compat import core, cpu, runner;"
        "sys.exit(', '.join({'xgrammar', 'llguidance', 'torch', 'vllm'} & set(sys.modules)) or 0)"
    )
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
