"""What the grammar service's compiler refuses, asked without a worker's process."""

import json
from typing import Any

from guided_contract.errors import GuidedError
from guided_grammar.registry import Backends
from guided_sidecar.grammar.compile.compilation import Compiler
from guided_sidecar.grammar.worker_messages import Job
from support import tokenizers


def new_compiler() -> Compiler:
    words = tokenizers.vocabulary()
    return Compiler(Backends(words), words)


def refusal(compiler: Compiler, kind: Any, spec: Any, *backends: Any) -> GuidedError | None:
    """Return why a text is refused; None: it is served."""
    text = spec if isinstance(spec, str) else json.dumps(spec)
    known = list(backends or ("xgrammar", "guidance"))
    try:
        compiler.run(Job(key="k", kind=kind, spec=text, backends=known, timeout_s=60, memory_bytes=1 << 40))
    except GuidedError as error:
        return error
    return None
