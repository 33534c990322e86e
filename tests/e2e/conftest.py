"""The pod that modules of this folder share: starting one takes a minute."""

from collections.abc import Iterator

import pytest

from support.pod import COMPILE_DEADLINE_S, Pod, sample, start_pod

ARGS = ("--enable-scale-out", "--enable-auto-tool-choice", "--tool-call-parser", "hermes")


@pytest.fixture(scope="session")
def pod() -> Iterator[Pod]:
    """The sample, with a short deadline for compiles, tool calling, and the route for tokens in and out."""
    manifest = sample(guidedDecoding={"compile": {"timeout": f"{COMPILE_DEADLINE_S:.0f}s"}})
    manifest["spec"]["engine"]["args"] += ARGS
    pod = start_pod(manifest)
    yield pod
    pod.stop()
