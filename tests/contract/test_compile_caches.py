"""That the variables of `storage.cache` move the caches of the libraries that compile."""

from pathlib import Path

import pytest

from guided_operator.builders.pod import pod_template
from guided_operator.builders.pod_paths import CACHE, Site
from support.manifests import guided_model

pytestmark = pytest.mark.filterwarnings("ignore")  # the libraries' own imports warn
SITE = Site("guidedmodel:1")


def test_what_is_compiled_is_kept_in_the_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import triton
    import vllm.envs
    from torch._inductor.runtime import cache_dir_utils

    gm = guided_model(storage={"cache": {"persistentVolumeClaim": {"claimName": "c"}}})
    [engine] = pod_template(gm, SITE)["spec"]["containers"]
    kept = {one["name"]: one["value"] for one in engine["env"] if one.get("value", "").startswith(CACHE)}
    for name, value in kept.items():
        monkeypatch.setenv(name, value.replace(CACHE, str(tmp_path), 1))
    assert f"{tmp_path}/vllm" == vllm.envs.VLLM_CACHE_ROOT
    assert cache_dir_utils.cache_dir() == f"{tmp_path}/torchinductor"
    assert triton.knobs.cache.dir == f"{tmp_path}/triton"
    assert len(set(kept.values())) == len(kept) > 3


def test_without_a_claim_nothing_is_said() -> None:
    [engine] = pod_template(guided_model(), SITE)["spec"]["containers"]
    assert not [each for each in engine["env"] if each.get("value", "").startswith(CACHE)]
