"""`make fuzz`: atheris on everything that decodes what others send, a while for each target.

What it finds is kept in the cache, with the corpus, which a later run goes on with; ends with 1 then, and
says how to see it again.

TARGET=peers   one target alone; default: all
SECONDS=60     for each
INPUT=FILE     run one input alone, as it was found
"""

import os
import subprocess
import sys
from pathlib import Path

from devtools import cache

from support.fuzz import targets

_TESTS = Path(__file__).parents[2]


def main() -> None:
    asked = os.environ.get("TARGET")
    if asked and asked not in targets.NAMES:
        sys.exit(f"fuzz: TARGET is one of {', '.join(targets.NAMES)}")
    if path := os.environ.get("INPUT"):
        if not asked:
            sys.exit("fuzz: INPUT goes with TARGET")
        with targets.made(asked) as target:
            target.run(Path(path).read_bytes())
        print(f"fuzz: {asked} takes {path}")  # noqa: T201 - a program's answer
        return
    seconds = int(os.environ.get("SECONDS_EACH") or 60)
    failed = [name for name in ([asked] if asked else targets.NAMES) if not _fuzz(name, seconds)]
    if failed:
        sys.exit(f"fuzz: found something in {', '.join(failed)}")


def _fuzz(name: str, seconds: int) -> bool:
    """Fuzz one target in a process of its own; return whether nothing was found."""
    folder = cache.root() / "fuzz" / name
    corpus, found = folder / "corpus", folder / "found"
    for made in (corpus, found):
        made.mkdir(parents=True, exist_ok=True)
    with targets.made(name) as target:
        for number, seed in enumerate(target.seeds):
            (corpus / f"seed-{number}").write_bytes(seed)
    before = set(found.iterdir())
    command = [
        *(sys.executable, "-m", "support.fuzz.one", name, str(corpus), f"-artifact_prefix={found}/"),
        *(f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1"),
        *("-max_len=262144", "-verbosity=0"),
    ]
    paths = os.pathsep.join([str(_TESTS), str(_TESTS.parent / "tools")])
    print(f"fuzz: {name} for {seconds} s", flush=True)  # noqa: T201 - likewise
    status = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, check=False).returncode
    for path in sorted(set(found.iterdir()) - before):
        print(f"fuzz: again: make fuzz TARGET={name} INPUT={path}")  # noqa: T201 - likewise
    return status == 0


if __name__ == "__main__":
    main()
