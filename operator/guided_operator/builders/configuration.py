"""The pod's configuration file, and the ConfigMap that carries it."""

from pathlib import PurePosixPath

from guided_contract import config
from guided_operator.api import GuidedModel
from guided_operator.api.base import seconds
from guided_operator.api.quantity import amount
from guided_operator.builders.drain import drain_config
from guided_operator.builders.pod_paths import Site
from guided_operator.builders.source import location


def pod_config(gm: GuidedModel, site: Site) -> config.PodConfig:
    """Return what engine and sidecar of this model's pods read."""
    spec = gm.spec
    path = location(spec.model.uri, site)
    return config.PodConfig(
        name=gm.name,
        namespace=gm.namespace,
        model=path,
        tokenizer=path,
        revision=spec.model.revision,
        served_name=gm.served_name,
        trust_remote_code=spec.model.trust_remote_code,
        run_dir=site.run_dir,
        named_grammars_dir=site.named_grammars,
        tensor_parallel=spec.parallelism.tensor,
        pipeline_parallel=spec.parallelism.pipeline,
        data_parallel=spec.parallelism.data,
        nodes=spec.parallelism.nodes,
        bind_host=site.bind_host,
        ports=site.ports,
        guided_decoding=_guided_decoding(gm),
        logits_processors=[config.LogitsProcessorConfig(**dict(each)) for each in spec.logits_processors],
        drafts_by_load=spec.speculative is not None and spec.speculative.by_load,
        probes=config.ProbesConfig(
            startup_timeout_s=seconds(spec.probes.startup_timeout),
            stall_timeout_s=seconds(spec.probes.stall_timeout),
        ),
        drain=drain_config(gm, site),
        telemetry=_telemetry(gm, site),
    )


def config_file(gm: GuidedModel, site: Site) -> dict[str, str]:
    """Return the configuration file's text by its name."""
    return {PurePosixPath(site.config_path).name: config.encode(pod_config(gm, site)).decode()}


def collector(gm: GuidedModel) -> str | None:
    """Return the collector that the resource names."""
    return gm.spec.telemetry.endpoint if gm.spec.telemetry is not None else None


def _guided_decoding(gm: GuidedModel) -> config.GuidedDecodingConfig:
    guided = gm.spec.guided_decoding
    return config.GuidedDecodingConfig(
        placement=guided.placement,
        backend=guided.backend,
        unsupported_keywords=guided.unsupported_keywords,
        whitespace=guided.whitespace,
        proof=guided.proof,
        compile=config.CompileConfig(
            timeout_s=seconds(guided.compile.timeout),
            workers=guided.compile.workers,
            memory_bytes=int(amount(guided.compile.memory)),
            max_schema_bytes=int(amount(guided.compile.max_schema_size)),
            max_depth=guided.compile.max_depth,
        ),
        request_options=tuple(guided.request_options),
    )


def _telemetry(gm: GuidedModel, site: Site) -> config.TelemetryConfig:
    """Return what no variable says: the resource's collector is one, as its protocol and headers are."""
    sampling = float(gm.spec.telemetry.sampling) if gm.spec.telemetry is not None else 1.0
    if site.otlp_endpoint is not None:
        return config.TelemetryConfig(endpoint=site.otlp_endpoint)
    return config.TelemetryConfig(sampling=sampling)
