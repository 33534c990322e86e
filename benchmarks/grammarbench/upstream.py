"""vLLM's own compile, as its StructuredOutputManager has it: `auto`, in a process that can be killed.

`python -m grammarbench.upstream MODEL SECONDS` reads grammars, kind and text as one JSON array a line, and
answers each with seconds and what came of it. vLLM compiles in a thread that nothing can stop; here a
compile that takes too long costs its process, and the next one begins with an empty compiler cache.
"""

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Self

from guided_contract.wire import Kind


class Compiled(NamedTuple):
    """Seconds of one compile; `outcome` is the backend, `timeout`, or `refused`."""

    took_s: float
    outcome: str


class Upstream:
    """A process that holds vLLM's backends, and forks one that compiles."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @classmethod
    def start(cls, model: Path, limit_s: float) -> Self:
        """Start it.

        Parameters
        ----------
        limit_s
            Of one compile.
        """
        command = [sys.executable, "-m", "grammarbench.upstream", str(model), str(limit_s)]
        upstream = cls(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        upstream._read()
        return upstream

    def compile(self, kind: Kind, text: str) -> Compiled:
        """Compile a grammar."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([kind, text]) + "\n")
        self._process.stdin.flush()
        return self._read()

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()

    def _read(self) -> Compiled:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("upstream's process has ended")
        return Compiled(*json.loads(line))


class _Backends:
    """vLLM's two backends; `auto` is xgrammar, and llguidance for what xgrammar is known not to enforce."""

    def __init__(self, model: str) -> None:
        from transformers import AutoConfig  # noqa: PLC0415 - heavy, and only for this process
        from vllm.tokenizers import get_tokenizer  # noqa: PLC0415 - see above
        from vllm.v1.structured_output import backend_guidance, backend_xgrammar  # noqa: PLC0415 - see above
        from vllm.v1.structured_output.backend_types import StructuredOutputOptions  # noqa: PLC0415 - see above

        config = SimpleNamespace(
            structured_outputs_config=SimpleNamespace(
                disable_any_whitespace=False, disable_additional_properties=False
            ),
            model_config=SimpleNamespace(hf_config=SimpleNamespace(model_type="llama")),
            speculative_config=None,
        )
        tokenizer, size = get_tokenizer(model), AutoConfig.from_pretrained(model).vocab_size
        made: Any = {"tokenizer": tokenizer, "vocab_size": size}
        self._xgrammar: Any = backend_xgrammar.XgrammarBackend(config, **made)
        self._guidance: Any = backend_guidance.GuidanceBackend(config, **made)
        self._is_unsupported = backend_xgrammar.has_xgrammar_unsupported_json_features
        self._options = StructuredOutputOptions

    def compile(self, kind: Kind, text: str) -> str:
        """Compile a grammar, and return the backend."""
        option = self._options[kind.upper()]
        if kind != "json" or not self._is_unsupported(json.loads(text)):
            try:
                self._xgrammar.compile_grammar(option, text)
            except (RuntimeError, ValueError):
                pass  # vLLM's validator would have found that out before
            else:
                return "xgrammar"
        self._guidance.compile_grammar(option, text)
        return "guidance"


def _serve(model: str, limit_s: float) -> None:
    backends = _Backends(model)
    print(json.dumps((0.0, "ready")), flush=True)
    child: tuple[int, int, int] | None = None
    for line in sys.stdin:
        if child is None:
            child = _fork(backends)
        pid, schemas, answers = child
        os.write(schemas, line.encode())
        ready, _, _ = select.select([answers], [], [], limit_s)
        answer = os.read(answers, 4096).decode() if ready else ""
        if not answer:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
            os.close(schemas)
            os.close(answers)
            child = None
            answer = json.dumps((limit_s, "timeout")) + "\n"
        print(answer, end="", flush=True)


def _fork(backends: _Backends) -> tuple[int, int, int]:
    """Fork a process that compiles; return its pid and the pipes to and from it."""
    theirs, schemas = os.pipe()
    answers, ours = os.pipe()
    pid = os.fork()
    if pid:
        os.close(theirs)
        os.close(ours)
        return pid, schemas, answers
    os.close(schemas)
    os.close(answers)
    with os.fdopen(theirs) as lines, os.fdopen(ours, "w") as out:
        for line in lines:
            start = time.perf_counter()
            try:
                outcome = backends.compile(*json.loads(line))
            except Exception as error:  # noqa: BLE001 - native code raises what it likes
                outcome = f"refused: {type(error).__name__}"
            out.write(json.dumps((time.perf_counter() - start, outcome)) + "\n")
            out.flush()
    os._exit(0)


if __name__ == "__main__":
    _serve(sys.argv[1], float(sys.argv[2]))
