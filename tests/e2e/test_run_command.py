"""`guidedmodel run` before it serves: bad input, and Ctrl-C while everything is starting."""

from pathlib import Path

import pytest

from support.pod import Pod, gone, sample


def test_a_bad_file_names_the_field_and_exits_with_2() -> None:
    pod = Pod.launch(sample(parallelism={"tensor": "two"}))
    try:
        assert pod.ended(60) == 2
        assert gone(pod)
        assert pod.find(r"^-: spec\.parallelism\.tensor: ")
    finally:
        pod.stop()


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


@pytest.mark.engine
def test_a_model_that_vllm_cannot_load_ends_it_with_1_and_vllms_words() -> None:
    pod = Pod.launch(sample(engine={**sample()["spec"]["engine"], "args": ["--seed=seven"]}))
    try:
        assert pod.ended(200) == 1
        assert gone(pod)
        assert pod.find("engine ended with status ")
        assert pod.find("argument --seed: invalid int value: 'seven'")
    finally:
        pod.stop()
