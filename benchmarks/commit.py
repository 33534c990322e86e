"""Which commit a benchmark measures."""

import subprocess
from pathlib import Path


def name() -> str:
    """Return the commit's short name, and "-changed" behind it where the working tree differs."""
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return _git("rev-parse", "--short", "HEAD") + ("-changed" if changed else "")


def _git(*arguments: str) -> str:
    folder = Path(__file__).parent
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True, cwd=folder)
    return done.stdout.strip()
