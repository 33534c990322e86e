"""`make fuzz`: atheris on what strangers send, a while for each target.

What it finds is kept in the cache, with the corpus, which a later run goes on with; ends with 1 then.

TARGET=page    one target alone; default: all
SECONDS=60     for each
INPUT=FILE     run one input alone, as it was found

With arguments, `NAME CORPUS -OPTION=...`, it is one target's own process, until libFuzzer ends it.
"""

import logging
import os
import random
import subprocess
import sys
from pathlib import Path

import atheris
from devtools import cache

with atheris.instrument_imports(
    include=["guided_contract", "guided_operator", "guided_sidecar", "guided_engine", "guided_grammar"]
):
    from support.fuzz.targets import TARGETS, mutate

_OF_LIBFUZZER = 0.3  # the share of changes that it makes itself, of bytes that it has seen compared


def main() -> None:
    asked, path = os.environ.get("TARGET"), os.environ.get("INPUT")
    if asked and path:
        TARGETS[asked].run(Path(path).read_bytes())
        return
    failed = [name for name in ([asked] if asked else TARGETS) if not _fuzz(name)]
    if failed:
        sys.exit(f"fuzz: found something in {', '.join(failed)}; again: make fuzz TARGET= INPUT=")


def _fuzz(name: str) -> bool:
    """Fuzz one target in a process of its own; return whether nothing was found."""
    seconds = int(os.environ.get("SECONDS_EACH") or 60)
    corpus = cache.root() / "fuzz" / name / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(TARGETS[name].seeds()):
        (corpus / f"seed-{number}").write_bytes(seed)
    command = [
        *(sys.executable, "-m", "support.fuzz", name, str(corpus)),
        *(f"-artifact_prefix={corpus.parent}/found-", f"-max_total_time={seconds}", "-timeout=10"),
        *("-rss_limit_mb=2048", "-print_final_stats=1", "-max_len=262144", "-verbosity=0"),
    ]
    return not subprocess.run(command, check=False).returncode


def _run_target(name: str) -> None:
    logging.disable(logging.CRITICAL)

    def change(data: bytes, most_bytes: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < _OF_LIBFUZZER:
            return bytes(atheris.Mutate(data, most_bytes))
        return mutate(data, chance)[:most_bytes]

    atheris.Setup(sys.argv, TARGETS[name].run, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _run_target(sys.argv.pop(1))
    else:
        main()
