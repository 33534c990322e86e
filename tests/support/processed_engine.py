"""An engine asked with processors and without, `python -m support.processed_engine JOB.json`.

Without them all requests also tell the logits of each token, as log-probabilities. Batches are the same, so
that a row of theirs is what a processor is given, until its sequence goes another way.
"""

import random
import sys
from pathlib import Path
from typing import Any

import msgspec

from guided_contract.config import LogitsProcessorConfig
from guided_engine.processors.choice import ARGUMENT
from support.fake_service import FakeService
from support.matrix_engine import make_engine
from support.matrix_process import Job
from support.token_walks import repetitive

_SHIPPED = "guided_engine.processors"
PROCESSORS = [
    LogitsProcessorConfig(name=name, factory=f"{_SHIPPED}.{place}", params=params, apply_by_default=False)
    for name, place, params in (
        ("dry", "dry:Dry", {"allowed_length": 1, "multiplier": 3.0, "sequence_breakers": []}),
        ("no-repeat", "no_repeat_ngram:NoRepeatNgram", {"size": 2, "include_prompt": True}),
    )
]
TOKENS = 12


def prompts() -> list[list[int]]:
    """Return prompts that repeat themselves, of tokens that are no special ones."""
    rng = random.Random(0)
    return [[20 + token for token in repetitive(rng, 40, 60)] for _ in range(12)]


def main(path: Path) -> None:
    job = msgspec.json.decode(path.read_bytes(), type=Job)
    assert job.pod is not None
    with FakeService(job.pod.service_socket):
        llm = make_engine(job)
        answers: dict[str, Any] = {"plain": generate(llm, logprobs=-1)}
        for processor in PROCESSORS:
            answers[processor.name] = generate(llm, extra_args={ARGUMENT: processor.name})
    Path(job.answer).write_bytes(msgspec.json.encode(answers))


def generate(llm: Any, **params: Any) -> list[Any]:
    """Return of each prompt its tokens, and the log-probabilities of all tokens at each if asked for."""
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt

    outputs = llm.generate(
        [TokensPrompt(prompt_token_ids=prompt) for prompt in prompts()],
        SamplingParams(temperature=0.0, max_tokens=TOKENS, ignore_eos=True, **params),
        use_tqdm=False,
    )
    given = []
    for output in outputs:
        [one] = output.outputs
        rows = [[of[token].logprob for token in range(len(of))] for of in one.logprobs or ()]
        given.append((list(one.token_ids), rows))
    return given


if __name__ == "__main__":
    main(Path(sys.argv[1]))
