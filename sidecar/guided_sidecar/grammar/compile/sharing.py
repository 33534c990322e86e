"""What ranks are to load of a compiled grammar: its text, or a file where compiling that again takes long."""

from pathlib import Path
from typing import Final

import msgspec

from guided_contract.choices import BOUND
from guided_contract.counting import Position
from guided_contract.errors import ErrorCode, GuidedError
from guided_grammar.backend import Compiled
from guided_sidecar.grammar import artifacts
from guided_sidecar.grammar.compile.reading import Grammar
from guided_sidecar.grammar.worker_messages import Done, Job

# Larger ones take ranks many seconds to load, and few of them would fill the folder that the pod shares.
_MOST_BYTES: Final = 64 << 20


def loads(job: Job, grammar: Grammar, compiled: Compiled, positions: list[Position], folder: Path) -> Done:
    """Return what ranks are to load, of which a file is written.

    Raises
    ------
    GuidedError
        It is too large, there is no room for it, or ranks read no files and it has no text.
    """
    source = compiled.source(is_slow_sent=not job.has_files)
    if source is None and not job.has_files:
        message = f"{compiled.backend} has no text of this grammar below 1 MiB to send to several nodes"
        raise GuidedError(ErrorCode.GRAMMAR_UNSUPPORTED, message)
    content = (source or compiled.artifact()).encode()
    if len(content) > _MOST_BYTES:
        message = f"the compiled grammar has {len(content) >> 20} MiB; the limit is {_MOST_BYTES >> 20}"
        raise GuidedError(ErrorCode.GRAMMAR_TOO_LARGE, message)
    done = Done(
        backend=compiled.backend,
        positions=positions,
        whitespace=_whitespace(job),
        is_tagged=job.kind == "structural_tag",
        unenforced=tuple(grammar.unenforced),
        size_bytes=max(len(content), compiled.memory_bytes),
    )
    if source is not None:
        return msgspec.structs.replace(done, spec=source)
    try:
        sha256 = artifacts.write(folder, job.key, content)
    except OSError as error:
        message = f"the compiled grammar could not be written: {error.strerror}"
        raise GuidedError(ErrorCode.GRAMMAR_STORAGE_FULL, message) from error
    return msgspec.structs.replace(done, artifact=job.key, sha256=sha256)


def _whitespace(job: Job) -> int | None:
    """Return the bound of white space that ranks count beside the grammar, None for none."""
    if job.kind == "structural_tag" and job.whitespace is not None:
        return max(job.whitespace, BOUND)  # else what a tag has of its own between two calls would go, too
    return job.whitespace if job.kind in ("json", "json_object") else None
