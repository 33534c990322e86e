"""That the variables of `storage.cache` move the caches of the libraries that compile."""

import json
import os
import subprocess
import sys

from guided_operator.builders.pod import pod_template
from guided_operator.builders.pod_paths import CACHE, Site
from support.manifests import guided_model

SITE = Site("guidedmodel:1")
ASK = """
import json, torch._inductor.runtime.cache_dir_utils as inductor, triton, vllm.envs
from vllm.utils import deep_gemm
print(json.dumps({
    "vllm": vllm.envs.VLLM_CACHE_ROOT,
    "torchinductor": inductor.cache_dir(),
    "triton": triton.knobs.cache.dir,
}))
"""


def test_what_is_compiled_is_kept_in_the_claim(tmp_path: object) -> None:
    gm = guided_model(storage={"cache": {"persistentVolumeClaim": {"claimName": "c"}}})
    [engine] = pod_template(gm, SITE)["spec"]["containers"]
    env = {each["name"]: each["value"] for each in engine["env"] if each.get("value", "").startswith(CACHE)}
    env = {name: value.replace(CACHE, str(tmp_path), 1) for name, value in env.items()}
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=os.environ | env, capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {name: f"{tmp_path}/{name}" for name in found}
    assert len(set(env.values())) == len(env) > len(found)


def test_without_a_claim_nothing_is_said() -> None:
    [engine] = pod_template(guided_model(), SITE)["spec"]["containers"]
    assert not [each for each in engine["env"] if each.get("value", "").startswith(CACHE)]
