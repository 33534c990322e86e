"""The engine core's changes in the installed vLLM's own scheduler; the model runner answers by script."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from guided_contract import names
from guided_contract.config import PodConfig
from guided_contract.wire import Ticket
from guided_engine.compat import cpu, runner
from guided_engine.compat.runner import ENDS_ATTRIBUTE
from guided_engine.ranks.tickets import ticket_of
from support.engine import ONE_THREAD, pod_config
from support.scheduler import TICKET, Core, change_core

FAULTS = Path(__file__).parents[2] / "docs/upstream"
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
        assert getattr(outputs["r"], "error", None) is None  # which would win over our code
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


class TestEnds:
    def test_one_sequence_ends_alone_without_the_steps_token(self, running: Core) -> None:
        free = running.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        for request_id in ("r", "s"):
            running.add(request_id)
        running.step()
        outputs = running.step({"r": "sequence_token_rejected"})
        assert outputs["r"].finish_reason.name == "ERROR"
        assert outputs["r"].stop_reason == "sequence_token_rejected"
        assert outputs["r"].new_token_ids == []
        assert outputs["s"].finish_reason is None
        assert outputs["s"].new_token_ids == [9]
        assert set(running.step({"r": "sequence_dead_end", "unknown": "sequence_dead_end"})) == {"s"}
        assert set(running.step({"s": "sequence_dead_end"})) == {"s"}
        running.step()
        assert running.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == free

    @pytest.mark.usefixtures("_patched")
    def test_a_step_in_flight_of_an_ended_one_is_dropped(self) -> None:
        running = Core(is_async=True)
        running.add("r")
        first, second = running.scheduler.schedule(), running.scheduler.schedule()
        assert running.take(first, {"r": "sequence_dead_end"})["r"].stop_reason == "sequence_dead_end"
        assert running.take(second) == {}

    def test_a_failing_one_may_ask_for_prompt_logprobs(self, running: Core) -> None:
        from vllm.v1.outputs import LogprobsTensors

        running.add("r", prompt_logprobs=1)
        scheduled = running.scheduler.schedule()
        logprobs = {"r": LogprobsTensors.empty_cpu(2, 2)}
        output = running.output(scheduled, {"r": [9]}, prompt_logprobs_dict=logprobs)
        setattr(output, ENDS_ATTRIBUTE, {"r": "sequence_dead_end"})
        (client,) = running.scheduler.update_from_output(scheduled, output).values()
        assert [one.stop_reason for one in client.outputs] == ["sequence_dead_end"]


class TestCpu:
    @pytest.fixture(autouse=True)
    def _restored(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from vllm.platforms import current_platform
        from vllm.utils import cpu_triton_utils
        from vllm.v1.sample.ops import topk_topp_sampler

        monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "")
        platform = type(current_platform)
        monkeypatch.setattr(platform, "check_and_update_config", platform.__dict__["check_and_update_config"])
        monkeypatch.setattr(cpu_triton_utils, "_expand_kernel_impl", cpu_triton_utils._expand_kernel_impl)
        monkeypatch.setattr(topk_topp_sampler, "apply_top_k_only", topk_topp_sampler.apply_top_k_only)

    @pytest.mark.parametrize(
        "fault", ["cpu-settings-async", "cpu-settings-fork", "cpu-kernels-expand", "cpu-kernels-top-k"]
    )
    def test_what_the_reproducers_for_vllm_show_is_mended(
        self, pod: PodConfig, monkeypatch: pytest.MonkeyPatch, fault: str
    ) -> None:
        for name, value in ONE_THREAD.items():
            monkeypatch.setenv(name, value)
        cpu.keep_settings(pod)
        cpu.mend_kernels(pod)
        assert runpy.run_path(str(FAULTS / f"{fault}.py"))["main"]() == ""

    @pytest.mark.parametrize(("binding", "threads"), [("nobind", "2"), ("auto", "1")])
    def test_ranks_are_spawned_where_they_have_threads_of_their_own(
        self, pod: PodConfig, monkeypatch: pytest.MonkeyPatch, binding: str, threads: str
    ) -> None:
        from vllm.config import VllmConfig
        from vllm.utils.system_utils import get_mp_context

        monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", binding)
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        cpu.keep_settings(pod)
        VllmConfig()
        assert get_mp_context().get_start_method() == "spawn"

    def test_top_k_of_a_row_stays(self, pod: PodConfig) -> None:
        import torch
        from vllm.v1.sample.ops import topk_topp_sampler as sampler

        cpu.mend_kernels(pod)
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

        runner = Runner()
        cpu.spare_generators(runner)
        runner.sample_tokens()
        found = {
            row: one.get_state().equal(torch.Generator().manual_seed(row).get_state())
            for row, one in runner.input_batch.generators.items()
        }
        assert found == {0: False, 2: True}
