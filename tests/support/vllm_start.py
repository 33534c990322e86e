"""How a GuidedModel's pods start vLLM, and what vLLM's own parser makes of it."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from devtools import tinymodel

from guided_contract import config
from guided_engine.compat import serve
from guided_engine.cpus import Cpus
from guided_engine.launcher.command import EngineCommand, plan
from guided_operator.api import GuidedModel
from guided_operator.builders.configuration import config_file
from guided_operator.builders.pod import pod_template
from guided_operator.builders.pod_paths import Site
from support.manifests import guided_model

SITE = Site("guidedmodel:1")


def tiny_model(**fields: Any) -> GuidedModel:
    """Return a GuidedModel of the tiny model, as vLLM finds it on this machine."""
    own = {"engine__accelerator": {"type": "None"}, "model__uri": f"file://{tinymodel.models() / 'tiny'}"}
    return guided_model(**own | fields)


def command(model: GuidedModel, env: Mapping[str, str] | None = None) -> EngineCommand:
    """Return what the launcher makes of the rendered pod: vLLM's words alone, and the environment."""
    [text] = config_file(model, SITE).values()
    [engine] = pod_template(model, SITE)["spec"]["containers"]
    own = {each["name"]: each["value"] for each in engine["env"] if "value" in each}
    started = plan(config.decode(text.encode()), engine["args"], {**own, **(env or {})}, Cpus(1))
    return dataclasses.replace(started, argv=started.argv[3:])  # behind python3 -m MODULE


@functools.cache
def _parser() -> Any:
    return serve.make_parser()


def configuration(words: Sequence[str], *usage: Any) -> Any:
    """Return the VllmConfig that vLLM makes of a command line."""
    from vllm import AsyncEngineArgs

    args = _parser().parse_args([*words])
    args.model = args.model_tag  # as the command does
    return AsyncEngineArgs.from_cli_args(args).create_engine_config(*usage)
