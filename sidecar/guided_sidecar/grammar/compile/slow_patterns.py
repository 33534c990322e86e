"""Patterns of a grammar that may be slow, each walked alone: the walks of the whole may not come to it."""

import contextlib
import json
import re
import time
from collections.abc import Callable
from typing import Any, Final

from guided_grammar.backend import BackendError, Compiled
from guided_grammar.json_schema import subschemas
from guided_sidecar.grammar.compile.proof import Prover
from guided_sidecar.grammar.compile.proof_faults import Fault
from guided_sidecar.grammar.compile.reading import Grammar

_BUDGET_S: Final = 0.1  # CPU time, after which no other pattern is walked alone
_NESTED: Final = re.compile(r"[*+}][^()]*(?:\)[^()]*)*\)[*+{]")  # a repeat within a group that is repeated


def fault(grammar: Grammar, prover: Prover, compiled: Callable[[str], Compiled]) -> Fault | None:
    """Return what is wrong with the time of a pattern; `compiled` compiles a schema's text."""
    until_s = time.thread_time() + _BUDGET_S
    for pattern, path in repeating(grammar).items():
        if time.thread_time() > until_s:
            break
        text = json.dumps({"type": "string", "pattern": pattern})
        with contextlib.suppress(BackendError):  # it has been compiled as a part of the whole
            if (found := prover.slow_fault(compiled(text))) is not None:
                return found._replace(message=f"{path}: {found.message}", path=path)
    return None


def repeating(grammar: Grammar) -> dict[str, str]:
    """Return the patterns of a grammar's schemas that repeat what repeats, with the path of one each."""
    found: dict[str, str] = {}
    for inner in grammar.schemas:
        if not _has_patterns(inner.schema):
            continue
        for place in subschemas.walk(inner.schema):
            names = [*place.schema.get("patternProperties", ())]
            for pattern in [place.schema.get("pattern"), *names]:
                if isinstance(pattern, str) and _NESTED.search(pattern) and pattern not in found:
                    keyword = "patternProperties" if pattern in names else "pattern"
                    found[pattern] = inner.at(place.at(keyword))
    return found


def _has_patterns(form: Any) -> bool:
    return any("pattern" in part or "patternProperties" in part for part in subschemas.within(form))
