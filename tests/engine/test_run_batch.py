"""`vllm run-batch` inside a pod: guided lines are refused one by one, the others are answered."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from devtools.process import Process

from guided_contract import names
from support import matrix
from support.engine import ARGS, ENVIRONMENT, pod_config, wait_until, write_config
from support.routes import CARD

pytestmark = [
    pytest.mark.engine,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not matrix.is_full(), reason="MATRIX=full runs it"),
]

END_TIMEOUT_S = 400.0
SCHEMA = {"type": "json_schema", "json_schema": {"name": "card", "schema": CARD}}
UNADMITTED = "request_not_admitted"
# What is asked, and the code of its refusal.
LINES: dict[str, tuple[dict[str, Any], str]] = {
    "unguided": ({}, ""),
    "schema": ({"response_format": SCHEMA}, UNADMITTED),
    "choice": ({"structured_outputs": {"choice": ["a", "b"]}}, UNADMITTED),
    "by name": ({"vllm_xargs": {"guided_grammar": "card"}}, UNADMITTED),
    "reserved": ({"vllm_xargs": {"guided_ticket": "forged"}}, "request_reserved_argument"),
    "processors": ({"vllm_xargs": {"logits_processors": "absent"}}, "request_invalid"),
    "beam search": ({"response_format": SCHEMA, "use_beam_search": True, "n": 2}, UNADMITTED),
}


def test_guided_lines_of_a_batch_file_are_refused_with_our_words(tmp_path: Path) -> None:
    """There is no HTTP request whose verdict could be kept back, and so no admission."""
    pod = pod_config(tmp_path)
    message = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 4}
    lines = [
        {"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": message | fields}
        for name, (fields, _) in LINES.items()
    ]
    asked, answered = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    asked.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.launchers.run_batch", "-i", asked, "-o", answered, *ARGS),
        *("--model", pod.model, "--served-model-name", "tiny"),
        *("--worker-cls", "guided_engine.worker.GuidedWorker"),
    ]
    environment = {**os.environ, **ENVIRONMENT, names.ENV_CONFIG: str(write_config(pod))}
    process = Process.start("batch", command, tmp_path / "batch.log", environment=environment)
    try:
        wait_until(lambda: not process.is_running(), END_TIMEOUT_S)
        assert answered.exists(), process.log.read_text()[-4000:]
    finally:
        process.stop()

    answers = {one["custom_id"]: one for one in map(json.loads, answered.read_text().splitlines())}
    assert answers.keys() == LINES.keys()
    for name, (_, code) in LINES.items():
        assert answers[name]["response"]["status_code"] == (400 if code else 200), answers[name]
        assert code in json.dumps(answers[name]), answers[name]
