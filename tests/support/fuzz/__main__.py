"""`make fuzz`: atheris on what strangers send, a while for each target.

What it finds is kept in the cache, with the corpus, which a later run goes on with; ends with 1 then, and
says how to see it again.

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

from devtools import cache

from support.fuzz.target import NAMES, made

_PRODUCT = ["guided_contract", "guided_operator", "guided_sidecar", "guided_engine", "guided_grammar"]
_OF_LIBFUZZER = 0.3  # the share of changes that it makes itself, of bytes that it has seen compared


def main() -> None:
    asked, path = os.environ.get("TARGET"), os.environ.get("INPUT")
    if asked and asked not in NAMES:
        sys.exit(f"fuzz: TARGET is one of {', '.join(NAMES)}")
    if path:
        if not asked:
            sys.exit("fuzz: INPUT goes with TARGET")
        with made(asked) as target:
            target.run(Path(path).read_bytes())
        print(f"fuzz: {asked} takes {path}")  # noqa: T201 - a program's answer
        return
    seconds = int(os.environ.get("SECONDS_EACH") or 60)
    failed = [name for name in ([asked] if asked else NAMES) if not _fuzz(name, seconds)]
    if failed:
        sys.exit(f"fuzz: found something in {', '.join(failed)}")


def _fuzz(name: str, seconds: int) -> bool:
    """Fuzz one target in a process of its own; return whether nothing was found."""
    folder = cache.root() / "fuzz" / name
    corpus, found = folder / "corpus", folder / "found"
    for place in (corpus, found):
        place.mkdir(parents=True, exist_ok=True)
    with made(name) as target:
        for number, seed in enumerate(target.seeds):
            (corpus / f"seed-{number}").write_bytes(seed)
    before = set(found.iterdir())
    command = [
        *(sys.executable, "-m", "support.fuzz", name, str(corpus), f"-artifact_prefix={found}/"),
        *(f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"),
        *("-max_len=262144", "-verbosity=0"),
    ]
    print(f"fuzz: {name} for {seconds} s", flush=True)  # noqa: T201 - likewise
    status = subprocess.run(command, check=False).returncode
    for path in sorted(set(found.iterdir()) - before):
        print(f"fuzz: again: make fuzz TARGET={name} INPUT={path}")  # noqa: T201 - likewise
    return status == 0


def _run_target(name: str) -> None:
    import atheris

    logging.disable(logging.CRITICAL)
    with atheris.instrument_imports(include=_PRODUCT), made(name) as target:

        def mutate(data: bytes, most_bytes: int, seed: int) -> bytes:
            chance = random.Random(seed)
            if chance.random() < _OF_LIBFUZZER:
                return bytes(atheris.Mutate(data, most_bytes))
            return target.mutate(data, chance)[:most_bytes]

        atheris.Setup(sys.argv, target.run, custom_mutator=mutate)
        atheris.Fuzz()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _run_target(sys.argv.pop(1))
    else:
        main()
