"""What users have from vLLM runs unchanged: its own AdapterLogitsProcessor, on the same tokens, judges."""

import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from vllm import SamplingParams
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor, BatchUpdate, MinPLogitsProcessor
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor

from guided_contract.config import LogitsProcessorConfig
from guided_engine.processors import dense, registry
from guided_engine.processors.adapters import factory_of
from guided_engine.processors.interface import Context, Params, SequenceInfo
from guided_engine.testing import Harness
from support import processor_rules

VOCAB = 24
CONTEXT = Context(vocab_size=VOCAB)
PROMPT = [1, 2, 3]


def no_token_twice(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
    """Change the row in place."""
    logits[output_ids] -= 3.0
    return logits


def like_the_prompt(prompt_ids: list[int], output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
    """Return another tensor, of another type."""
    row = logits.double()
    row[prompt_ids + output_ids[-1:]] += 1.0
    return row


class KeepsOne:
    """Forbids all but one token, which it reads on the host, as vLLM's own example does."""

    def __init__(self, token: int) -> None:
        self._token = token

    def __call__(self, output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:  # noqa: ARG002 - vLLM's
        kept = logits[self._token].item()
        logits[:] = float("-inf")
        logits[self._token] = kept
        return logits


class TargetToken(AdapterLogitsProcessor):
    """As vLLM's example: for requests with `target_token`."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:  # noqa: FBT001
        super().__init__(vllm_config, device, is_pin_memory)
        self.made_with = (vllm_config, device, is_pin_memory)

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        token = (sampling_params.extra_args or {}).get("target_token")
        if token is not None and not isinstance(token, int):
            raise ValueError(f"target_token must be an integer, and is {token!r}")

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: Any) -> Any:
        token = (params.extra_args or {}).get("target_token")
        return None if token is None else KeepsOne(token)


class WithPrompt(AdapterLogitsProcessor):
    """For each request the same function, of its arguments alone."""

    supports_speculation = True

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: Any) -> Any:  # noqa: ARG002 - vLLM's
        return like_the_prompt


class Sharpens(WithPrompt):
    """Leaves the likeliest token where it is."""

    def is_argmax_invariant(self) -> bool:
        return True

    def new_req_logits_processor(self, params: Any) -> Any:  # noqa: ARG002 - vLLM's
        return lambda _output, logits: logits * 2


class Raises(WithPrompt):
    """Fails once a sequence has two tokens."""

    def new_req_logits_processor(self, params: Any) -> Any:  # noqa: ARG002 - vLLM's
        def function(output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
            if len(output_ids) == 2:
                raise RuntimeError("two")
            return logits

        return function


class OfV2(LogitsProcessor):
    """vLLM's V2 interface."""

    def apply(self, logits: torch.Tensor, ctx: Any) -> torch.Tensor:  # noqa: ARG002 - vLLM's
        return logits


OfV1 = MinPLogitsProcessor
Neither = KeepsOne
a_number = 3


class Wrapped(AdapterLogitsProcessor):
    """A function as users of vLLM pass it: the class around it is theirs."""

    function: Any = None

    def is_argmax_invariant(self) -> bool:
        return False

    def new_req_logits_processor(self, params: Any) -> Any:  # noqa: ARG002 - vLLM's
        return type(self).function


def of_vllm(adapter: Any, params: SamplingParams, output: list[int]) -> AdapterLogitsProcessor:
    """Return vLLM's own with one request in its batch, as Model Runner V1 adds it."""
    if not isinstance(adapter, type):
        adapter = type("OfFunction", (Wrapped,), {"function": staticmethod(adapter)})
    made: AdapterLogitsProcessor = adapter(None, torch.device("cpu"), False)
    made.update_state(BatchUpdate(1, removed=(), added=[(0, params, PROMPT, output)], moved=()))
    return made


def called(adapter: AdapterLogitsProcessor, row: Any) -> Any:
    adapter.update_state(None)
    return adapter.apply(torch.from_numpy(row[None].copy())).numpy()[0]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("adapter", [no_token_twice, like_the_prompt, WithPrompt, TargetToken])
def test_rows_are_what_vllms_own_makes_of_them_with_drafts_and_preemption(adapter: Any, seed: int) -> None:
    rng, noise = random.Random(seed), np.random.default_rng(seed)
    params = SamplingParams(extra_args={"target_token": 7})
    harness = Harness(adapter, context=CONTEXT)
    sequence = harness.sequence(PROMPT, sampling_params=params)
    output: list[int] = []
    judge = of_vllm(adapter, params, output)
    for _ in range(30):
        most = 3 if sequence.supports_speculation else 0
        drafts = [rng.randrange(VOCAB) for _ in range(rng.randint(0, most))]
        logits = noise.normal(size=(1 + len(drafts), VOCAB)).astype(np.float32)
        changed = sequence.rows(logits, drafts)
        # One token per step is all that vLLM's knows.
        kept = len(output)
        for row, draft in zip(range(len(logits)), [*drafts, None], strict=True):
            np.testing.assert_array_equal(changed[row], called(judge, logits[row]))
            output += [] if draft is None else [draft]
        del output[kept + rng.randint(0, len(drafts)) :]
        output.append(rng.randrange(VOCAB))
        sequence.accept(*output[kept:])
        if rng.random() < 0.2:
            lost = rng.randint(0, 1)
            sequence.preempt(lost)
            del output[len(output) - lost :]
            judge = of_vllm(adapter, params, output)


@pytest.mark.parametrize("factory", [no_token_twice, WithPrompt, Sharpens])
def test_the_rules_of_factories_hold(factory: Any) -> None:
    processor_rules.check(factory, context=CONTEXT, sampling_params=SamplingParams())


def test_its_constructor_gets_what_vllm_gives_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(
        TargetToken, "new_req_logits_processor", lambda self, _params: seen.append(self.made_with)
    )
    config = object()
    context = Context(vocab_size=VOCAB, vllm_config=config, device="cuda:1", is_pin_memory=True)
    Harness(TargetToken, context=context).sequence()
    assert seen == [(config, torch.device("cuda:1"), True)]


def test_a_function_that_raises_ends_its_sequence_alone(caplog: pytest.LogCaptureFixture) -> None:
    factory: Any = factory_of(Raises)(Params(), CONTEXT)
    long, short = factory.create(SequenceInfo()), factory.create(SequenceInfo())
    long.accept([1, 2])
    results = [*long.prepare([]), *short.prepare([])]
    logits = torch.zeros(2, VOCAB)
    assert dense.tried(factory, results, logits, torch.arange(2)).tolist() == [dense.IS_WRONG, dense.IS_RIGHT]
    assert "Raises failed" in caplog.text
    assert "RuntimeError: two" in caplog.text
    assert not logits.any()


def test_a_prompt_of_embeddings_has_no_tokens_to_give() -> None:
    with pytest.raises(Exception, match="prompt's token ids"):
        Harness(like_the_prompt, context=CONTEXT).sequence()


def config(name: str, **params: Any) -> LogitsProcessorConfig:
    return LogitsProcessorConfig(name="mine", factory=f"{__name__}:{name}", params=params)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("OfV1", "V1 interface with its own state"),
        ("OfV2", "vLLM's V2 interface"),
        ("Neither", "is not a ProcessorFactory"),
        ("a_number", "nor a function of"),
        ("Absent", "does not exist: .* has no Absent"),
    ],
)
def test_what_cannot_run_is_refused_with_what_to_do(name: str, words: str) -> None:
    with pytest.raises(registry.FactoryError, match=words) as refused:
        registry.find(config(name))
    said = str(refused.value)
    assert said.startswith("logits processor 'mine': ")
    assert name == "Absent" or "ProcessorFactory" in said


@pytest.mark.parametrize("name", ["no_token_twice", "TargetToken"])
def test_the_resource_names_it_and_gives_it_no_params(name: str) -> None:
    assert registry.check(config(name)).__qualname__ == name
    with pytest.raises(registry.FactoryError, match="unknown field"):
        registry.check(config(name, size=3))


def test_a_class_without_vllm_is_told_by_what_it_has() -> None:
    sequence = Harness("support.odd_processors:Target", context=CONTEXT).sequence
    [row] = sequence(sampling_params=SimpleNamespace(target=7)).rows()
    assert np.flatnonzero(row == 0).tolist() == [7]
