"""`guidedmodel run` before it serves: Ctrl-C while everything is starting."""

from pathlib import Path

import pytest

from support.pod import Pod, gone, sample


@pytest.mark.engine
def test_ctrl_c_while_starting_leaves_nothing() -> None:
    pod = Pod.launch(sample())
    try:
        pod.wait(lambda: pod.find("^engine: starting"), 120)
        pod.wait(lambda: len(pod.processes()) >= 6)  # command, two guards, launcher, sidecar's and vLLM's
        folder = Path(pod.config.run_dir).parent
        assert pod.interrupt() == 0
        assert gone(pod)
        assert pod.find("^stopping$")
        assert not folder.exists()
    finally:
        pod.stop()
