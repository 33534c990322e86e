"""What a step costs: nothing where no guided row samples, and in a mixed batch only the guided rows."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from llguidance import LLMatcher

from guided_contract.names import TICKET_ARG
from guided_contract.wire import Load
from guided_engine.compat.runner import GuidedRunner
from guided_engine.compat.runner_v2 import RunnerV2
from guided_engine.processors.interface import Context
from guided_engine.processors.registry import Registry
from guided_engine.ranks.arrivals import RankTraits
from guided_engine.ranks.bitmasks import BitmaskBuffer
from guided_engine.ranks.loaded_grammars import LoadedGrammars
from guided_engine.ranks.rank_guide import RankGuide
from guided_grammar.registry import Backends
from support.rank import VOCAB, ByteVocabulary

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

A = ord("a")


class Masker:
    """Where vLLM's runner masks; remembers for whom."""

    def __init__(self) -> None:
        self.masked: list[list[str]] = []
        self.bitmasks: list[np.ndarray] = []

    def apply_grammar_bitmask(
        self, _logits: Any, _batch: Any, request_ids: list[str], bitmask: np.ndarray
    ) -> None:
        self.masked.append(list(request_ids))
        self.bitmasks.append(bitmask.copy())


class Runner:
    """Runs a step as Model Runner V2 does, but for the model: every row samples an `a`."""

    def __init__(self) -> None:
        self.vllm_config = SimpleNamespace(
            speculative_config=None, scheduler_config=SimpleNamespace(async_scheduling=True)
        )
        self.structured_outputs_worker = Masker()
        self.batch_sharder = None
        self.execute_model_state: Any = None
        self.waits = 0

    def execute_model(self, scheduled: Any) -> None:
        self.execute_model_state = list(scheduled.num_scheduled_tokens)

    def sample_tokens(self, grammar_output: Any) -> Any:
        ids, self.execute_model_state = self.execute_model_state, None
        batch = SimpleNamespace(req_ids=ids, cu_num_logits_np=np.arange(len(ids) + 1))
        if grammar_output is not None:
            self.structured_outputs_worker.apply_grammar_bitmask(
                torch.zeros(len(ids), VOCAB),
                batch,
                grammar_output.structured_output_request_ids,
                grammar_output.grammar_bitmask,
            )
        return SimpleNamespace(
            copy_event=SimpleNamespace(synchronize=self._wait),
            num_sampled_tokens_np=np.ones(len(ids), dtype=np.int32),
            sampled_token_ids=np.full((len(ids), 1), A),
            model_runner_output=SimpleNamespace(req_ids=ids),
        )

    def _wait(self) -> None:
        self.waits += 1


class Rank:
    def __init__(self) -> None:
        loaded_grammars = LoadedGrammars(Backends(ByteVocabulary()))
        spec = LLMatcher.grammar_from_regex("a*b")
        assert not loaded_grammars.load(Load(key="k", backend="guidance", spec=spec)).error
        self.buffer = BitmaskBuffer(64, VOCAB, Backends(ByteVocabulary()))
        guide = RankGuide(
            RankTraits(0, VOCAB, is_async=True),
            loaded_grammars,
            Registry([], Context(vocab_size=VOCAB)),
            self.buffer,
            lambda _record: None,
        )
        self.runner = Runner()
        self.masker = self.runner.structured_outputs_worker
        GuidedRunner(self.runner, guide, RunnerV2(self.runner, guide), lambda: None)
        self.computed: dict[str, int] = {}

    def step(
        self,
        scheduled: Mapping[str, int],
        *,
        new: Sequence[str] = (),
        prompt: int = 1,
        finished: Sequence[str] = (),
    ) -> None:
        """Take a step; requests whose name begins with g are guided."""
        cached = [request_id for request_id in scheduled if request_id not in new]
        self.runner.execute_model(
            SimpleNamespace(
                scheduled_new_reqs=[_new(request_id, prompt) for request_id in new],
                scheduled_cached_reqs=SimpleNamespace(
                    req_ids=cached,
                    num_computed_tokens=[self.computed[one] for one in cached],
                    resumed_req_ids=(),
                ),
                finished_req_ids=set(finished),
                num_scheduled_tokens=dict(scheduled),
                scheduled_spec_decode_tokens={},
                has_structured_output_requests=False,
            )
        )
        for request_id, count in scheduled.items():
            self.computed[request_id] = self.computed.get(request_id, 0) + count
        self.runner.sample_tokens(None)

    @property
    def costs(self) -> tuple[int, int, int]:
        """Return how much memory was taken for masks, how often a mask went out, and waits."""
        return len(self.buffer._slots), len(self.masker.masked), self.runner.waits


def _new(request_id: str, prompt: int) -> Any:
    guided = request_id.startswith("g")
    constraint = SimpleNamespace(all_constraints_none=lambda: False) if guided else None
    extra = {TICKET_ARG: {"key": "k", "backend": "guidance"}} if guided else None
    params = SimpleNamespace(
        structured_outputs=constraint,
        extra_args=extra,
        all_stop_token_ids=set(),
        max_tokens=16,
        temperature=1.0,
    )
    tokens = [5] * prompt
    return SimpleNamespace(
        req_id=request_id,
        sampling_params=params,
        prompt_token_ids=tokens,
        prompt_len=prompt,
        prefill_token_ids=tokens,
        num_computed_tokens=0,
    )


@pytest.fixture
def rank() -> Rank:
    return Rank()


def test_steps_without_guided_requests_cost_nothing(rank: Rank) -> None:
    rank.step({"u": 1, "v": 1}, new=["u", "v"])
    for _ in range(5):
        rank.step({"u": 1, "v": 1})
    assert rank.costs == (0, 0, 0)


def test_a_guided_request_that_only_prefills_costs_nothing(rank: Rank) -> None:
    rank.step({"u": 1, "g": 4}, new=["u", "g"], prompt=12)
    rank.step({"u": 1, "g": 4})
    assert rank.costs == (0, 0, 0)
    rank.step({"u": 1, "g": 4})  # the prompt's last tokens: it samples
    assert rank.masker.masked == [["g"]]
    assert len(rank.masker.bitmasks[0]) == 1


def test_once_the_guided_requests_are_gone_steps_cost_nothing_again(rank: Rank) -> None:
    rank.step({"u": 1, "g": 1}, new=["u", "g"])
    rank.step({"u": 1, "g": 1})
    rank.step({"u": 1}, finished=["g"])
    before = rank.costs
    assert len(rank.masker.masked) == 2
    for _ in range(5):
        rank.step({"u": 1})
    assert rank.costs == before


def test_a_mixed_batch_masks_the_guided_rows_alone(rank: Rank) -> None:
    """InternLM/lmdeploy PR 4167: rows of unguided requests left uninitialised."""
    rank.step({"u": 1, "g": 1, "v": 1, "h": 1}, new=["u", "g", "v", "h"])
    for _ in range(3):
        rank.step({"u": 1, "g": 1, "v": 1, "h": 1})
    assert rank.masker.masked == [["g"]] * 4
    assert [len(bitmask) for bitmask in rank.masker.bitmasks] == [1] * 4
    allowed = np.flatnonzero(np.unpackbits(rank.masker.bitmasks[-1].view(np.uint8), bitorder="little"))
    assert allowed.tolist() == [A, A + 1]
