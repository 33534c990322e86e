"""One job from text to proven grammar: `Compiler.run` is the table of contents. Runs in a worker."""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import msgspec

from guided_contract.choices import BOUND
from guided_contract.counting import Position
from guided_contract.errors import GuidedError
from guided_contract.wire import Backend, Kind
from guided_grammar.backend import Backend as GrammarBackend
from guided_grammar.backend import BackendError
from guided_grammar.backend import Compiled as CompiledGrammar
from guided_sidecar.grammar.compile import (
    allowance,
    heard,
    library_texts,
    proof,
    reading,
    routing,
    vocabulary,
)
from guided_sidecar.grammar.compile.reading import Grammar
from guided_sidecar.grammar.compile.refusals import Refusals, proven
from guided_sidecar.grammar.schema import limits
from guided_sidecar.grammar.worker_messages import Compiled, Done, Job, Proof

_SCHEMA: Final = '{"type": "object", "properties": {"a": {"enum": ["b", "c"]}, "d": {"type": "integer"}}}'
_TAG: Final = f'{{"structures": [{{"begin": "<a", "schema": {_SCHEMA}, "end": ">"}}], "triggers": ["<a"]}}'
_TYPICAL: Final[tuple[tuple[Kind, str], ...]] = (("json", _SCHEMA), ("structural_tag", _TAG))

Tell = Callable[[Compiled], None]


class Compiler:
    """Compiles jobs one after the other.

    Parameters
    ----------
    backends
        The libraries by name; one that does not take the tokenizer raises BackendError.
    words
        The tokenizer.

    Attributes
    ----------
    proofs
        Those of the last job, also of one that was refused.
    """

    def __init__(self, backends: Mapping[Backend, GrammarBackend], words: vocabulary.Vocabulary) -> None:
        self._backends = backends
        self._words = words
        ends = [backend.stop_tokens for backend in self._usable()]
        self._prover = proof.Prover(words.tokens, frozenset().union(*ends))
        self._began_ns = 0  # the job that is being done
        self.proofs: list[Proof] = []

    def warm(self) -> None:
        """Do once all that a job does, so that forked workers inherit what is made at its first use."""
        for backend, (kind, spec) in itertools.product(self._backends, _TYPICAL):
            job = Job(key="", kind=kind, spec=spec, backends=[backend], timeout_s=0, memory_bytes=0)
            with contextlib.suppress(GuidedError):  # it is said to the first who asks
                self.run(job)
        for usable in self._usable():
            usable.is_worn = False  # ranks have as much

    @property
    def is_worn(self) -> bool:
        """Whether the next job is another process's to do: see guided_grammar.backend.Backend."""
        return any(backend.is_worn for backend in self._usable())

    def run(self, job: Job, tell: Tell = lambda _message: None) -> Done:
        """Compile and prove one grammar.

        Parameters
        ----------
        tell
            Called with what ranks may load meanwhile, before it is proven.

        Raises
        ------
        GuidedError
            The grammar is refused; grammar_compile_memory also where a library said so in its own words.
        """
        self.proofs, self._began_ns = [], time.perf_counter_ns()
        vocabulary.refuse_other(job.tokenizer, self._words)
        left = allowance.Allowance(job.kind, limits.parsed(job.kind, job.spec, job.limits))
        while True:
            try:
                grammar = reading.read(job.kind, left.written, left.taken)
                refusals = Refusals(job, grammar, self._backends)
                for backend in routing.order(job, grammar):
                    with refusals.noted(backend):
                        text, positions = library_texts.of(job, grammar, backend)
                        compiled = heard.compiled(self._backends[backend], job.kind, text)
                        return self._proven(job, grammar, compiled, positions, tell)
                raise refusals.clearest()
            except GuidedError as error:
                if not job.allows:
                    raise
                left.take_out(error)

    def _proven(
        self, job: Job, grammar: Grammar, compiled: CompiledGrammar, positions: list[Position], tell: Tell
    ) -> Done:
        """Tell what ranks may load, and prove it meanwhile where that is asked for."""
        began_ns, start_ns, source = time.perf_counter_ns(), time.time_ns(), compiled.source()
        done = Done(
            backend=compiled.backend,
            spec=source,
            positions=positions,
            whitespace=_whitespace(job),
            is_tagged=job.kind == "structural_tag",
            unenforced=tuple(grammar.unenforced),
            size_bytes=max(len(source.encode()), compiled.memory_bytes),
            compile_ns=began_ns - self._began_ns,
        )
        if not job.is_proven:
            return done
        tell(Compiled(done=done))
        fault, texts = self._prover.prove(compiled, positions, grammar)
        code = "" if fault is None else fault.code.value
        self.proofs.append(Proof(compiled.backend, start_ns, time.time_ns(), code, texts))
        if fault is not None:
            raise proven(grammar, fault.code, fault.message, fault.path)
        return msgspec.structs.replace(done, proof_ns=time.perf_counter_ns() - began_ns)

    def _usable(self) -> Iterator[GrammarBackend]:
        for name in self._backends:
            with contextlib.suppress(BackendError):  # it does not take the tokenizer
                yield self._backends[name]


def _whitespace(job: Job) -> int | None:
    """Return the bound of white space that ranks count beside the grammar, None for none."""
    if job.kind == "structural_tag" and job.whitespace is not None:
        return max(job.whitespace, BOUND)  # else what a tag has of its own between two calls would go, too
    return job.whitespace if job.kind in ("json", "json_object") else None
