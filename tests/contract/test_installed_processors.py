"""Logits processors of installed packages: vLLM's own start is the judge of who is refused, and when."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from vllm import SamplingParams
from vllm.v1.sample import logits_processor as v1
from vllm.v1.worker.gpu.sample.logits_processor import loader as v2

from guided_contract.config import GuidedDecodingConfig, LogitsProcessorConfig, PodConfig
from guided_engine.compat.installed_processors import ENTRIES, UnusableError
from guided_engine.ledger import PatchSkippedError
from support import adapted

Install = Callable[[str], None]
CACHED = (v1.cached_load_custom_logitsprocs, v2._cached_load_v2_logitsprocs)


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return what installs a distribution, acme-rules, with an entry point: its folder, as pip leaves it."""
    for module, name in ((v1, "_load_logitsprocs_plugins"), (v2, "_load_v2_logitsprocs_plugins")):
        monkeypatch.setattr(module, name, getattr(module, name))
    for cached in CACHED:
        cached.cache_clear()

    def installed(value: str) -> None:
        folder = tmp_path / "acme_rules-2.1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-rules\nVersion: 2.1\n")
        (folder / "entry_points.txt").write_text(f"[vllm.logits_processors]\nrules = {value}\n")
        monkeypatch.syspath_prepend(tmp_path)

    yield installed
    for cached in CACHED:
        cached.cache_clear()


def join(*factories: str, **fields: Any) -> None:
    """Change vLLM as the plugin does at the start of a process."""
    processors = [LogitsProcessorConfig(name=f"p{i}", factory=each) for i, each in enumerate(factories)]
    [entry] = ENTRIES
    entry.apply(
        PodConfig(
            name="t",
            model="m",
            tokenizer="m",
            served_name="m",
            run_dir="/nowhere",
            logits_processors=processors,
            **fields,
        )
    )


def start_v2() -> Any:
    """Do what the API server does first on Model Runner V2."""
    return v2.build_custom_logits_processors_params_validator(None)


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (
            "support.adapted:TargetToken",
            "name support.adapted:TargetToken in spec.logitsProcessors, or uninst",
        ),
        ("support.adapted:OfV1", "cannot run: uninstall the package"),
        (
            "support.absent:Name",
            r"cannot be imported \(No module named 'support.absent'\): repair or uninstall",
        ),
    ],
)
def test_what_v2_cannot_run_is_told_with_its_package_and_what_to_do(
    install: Install, value: str, advice: str
) -> None:
    install(value)
    with pytest.raises((ValueError, RuntimeError)) as upstream:
        start_v2()
    assert "acme-rules" not in str(upstream.value), "vLLM says it by itself: this can go"
    join()
    with pytest.raises(
        UnusableError, match=f"package acme-rules has the entry point rules = {value} in .*{advice}"
    ):
        start_v2()


def test_what_each_runner_can_run_is_loaded(install: Install) -> None:
    install("support.adapted:OfV2")
    join()
    assert v2._load_v2_logitsprocs(None) == [adapted.OfV2]
    start_v2()(SamplingParams())


def test_v1_runs_what_v1_can_run(install: Install) -> None:
    install("support.adapted:TargetToken")
    join()
    assert v1._load_custom_logitsprocs(None) == [adapted.TargetToken]
    v1.validate_logits_processors_parameters(None, SamplingParams())


def test_what_the_resource_names_is_left_to_it(install: Install) -> None:
    install("support.adapted:TargetToken")
    join("support.adapted:TargetToken")
    assert v2._load_v2_logitsprocs(None) == []
    assert v1._load_custom_logitsprocs(None) == []


def test_without_our_processors_vllm_stays_as_it_is(install: Install) -> None:
    install("support.adapted:TargetToken")
    with pytest.raises(PatchSkippedError):
        join(guided_decoding=GuidedDecodingConfig(placement="Scheduler"))
    with pytest.raises(ValueError, match="not a subclass"):
        start_v2()
