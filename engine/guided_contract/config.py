"""A pod's configuration file: written by operator or `guidedmodel run`, read by all its processes."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec

from guided_contract import names
from guided_contract.backends import Choice
from guided_contract.choices import RequestOption, UnsupportedKeywords, Whitespace
from guided_contract.errors import MALFORMED

Positive = Annotated[int, msgspec.Meta(gt=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]
PositiveSeconds = Annotated[float, msgspec.Meta(gt=0)]


class Struct(msgspec.Struct, frozen=True, rename="camel"):
    """Base of the configuration's parts: immutable, camelCase on disk, unknown fields ignored."""


class CompileConfig(Struct, frozen=True, kw_only=True):
    """Limits of one grammar's compilation."""

    timeout_s: PositiveSeconds = 10.0
    # Processes that compile at once; one spare is kept besides. None: by the sidecar's share of the CPUs.
    workers: Positive | None = None
    memory_bytes: Positive = 2 << 30  # address space above the warmed template, at most
    max_schema_bytes: Positive = 256 << 10
    max_depth: Positive = 64
    # No fields of the resource: no schema that people wrote comes near.
    max_properties: Positive = 10_000  # of all objects of a schema together
    max_enum: Positive = 10_000  # values of one enum, or strings of a choice
    max_regex_chars: Positive = 128 << 10  # of one pattern, or of a regex


class GuidedDecodingConfig(Struct, frozen=True, kw_only=True):
    """How guided requests are served; enum values as in the CRD."""

    placement: Literal["Rank", "Scheduler"] = "Rank"
    backend: Choice = "Auto"
    unsupported_keywords: UnsupportedKeywords = "Route"
    whitespace: Whitespace = "Flexible"  # Unbounded is what vLLM does by default
    proof: Literal["Always", "Never"] = "Always"
    compile: CompileConfig = CompileConfig()
    # No field of the resource: tokens of a sequence from one comparison of the ranks to the next.
    compare_every: Positive = 32
    request_options: tuple[RequestOption, ...] = get_args(RequestOption)  # what requests may choose


class LogitsProcessorConfig(Struct, frozen=True, kw_only=True):
    """One stateful logits processor, made per sequence by its factory."""

    name: str
    factory: str  # "package.module:Class"
    params: dict[str, Any] = {}
    apply_by_default: bool = True
    enforced: bool = False  # requests cannot leave it out


class ProbesConfig(Struct, frozen=True, kw_only=True):
    """Deadlines of health checks."""

    startup_timeout_s: PositiveSeconds = 1800.0  # to load the model; vLLM's own deadlines are no shorter
    stall_timeout_s: PositiveSeconds = 120.0  # busy without a step for so long: restart


class DrainConfig(Struct, frozen=True, kw_only=True):
    """How a pod that is told to stop finishes what it has begun."""

    timeout_s: Seconds = 300.0  # what requests in progress get, once proxies have had their time
    endpoint_lag_s: Seconds = 5.0  # so long proxies may still send new ones


class TelemetryConfig(Struct, frozen=True, kw_only=True):
    """Where traces go. `endpoint` None: traces off."""

    endpoint: str | None = None  # OTLP base URL, as http://collector:4318
    protocol: Literal["HTTP", "GRPC"] = "HTTP"
    sampling: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0

    def within(self, env: Mapping[str, str]) -> "TelemetryConfig":
        """Return what holds in an environment with OpenTelemetry's variables, those for traces first.

        https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
        """

        def said(name: str) -> str:
            ways = (env.get(f"OTEL_EXPORTER_OTLP_{way}{name}", "").strip() for way in ("TRACES_", ""))
            return next(filter(None, ways), "")

        if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            return TelemetryConfig()
        exporters = {word.strip().lower() for word in env.get("OTEL_TRACES_EXPORTER", "").split(",")}
        endpoint = said("ENDPOINT")
        if self.endpoint is not None or not endpoint or not {"", "otlp"} & exporters:
            return self
        protocol: Literal["HTTP", "GRPC"] = "GRPC" if said("PROTOCOL").lower() == "grpc" else "HTTP"
        return msgspec.structs.replace(self, endpoint=endpoint, protocol=protocol)


class PortsConfig(Struct, frozen=True, kw_only=True):
    """TCP ports of the pod's containers."""

    engine: Positive = names.ENGINE_PORT
    launcher: Positive = names.LAUNCHER_PORT
    sidecar: Positive = names.SIDECAR_PORT
    ranks: Positive = names.RANKS_PORT
    nodes: Positive = names.NODES_PORT


class PodConfig(Struct, frozen=True, kw_only=True):
    """Everything that a pod's processes share. Times in seconds, sizes in bytes.

    `model` and `tokenizer` are what vLLM gets (a path or a hub name).
    """

    name: str
    namespace: str = "default"
    model: str
    tokenizer: str
    revision: str | None = None  # of model and tokenizer on the hub; None: the default branch, or a path
    served_name: str
    trust_remote_code: bool = False
    run_dir: str
    # The files of named grammars (grammar_files), followed as they change; of the sidecar alone.
    named_grammars_dir: str | None = None
    tensor_parallel: Positive = 1
    pipeline_parallel: Positive = 1
    data_parallel: Positive = 1  # engine cores in this pod
    nodes: Positive = 1  # pods that the engine core's workers are spread over; the first has the core itself
    bind_host: str = "0.0.0.0"  # noqa: S104 - inside a pod; `guidedmodel run` writes 127.0.0.1
    ports: PortsConfig = PortsConfig()
    guided_decoding: GuidedDecodingConfig = GuidedDecodingConfig()
    logits_processors: list[LogitsProcessorConfig] = []
    drafts_by_load: bool = False  # the engine core chooses the number of draft tokens, by what it measures
    probes: ProbesConfig = ProbesConfig()
    # None: the engine stops at once, as no Service sends it requests (`guidedmodel run`).
    drain: DrainConfig | None = None
    telemetry: TelemetryConfig = TelemetryConfig()

    @property
    def workers(self) -> int:
        """Number of workers of one engine core."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def sampling_ranks(self) -> int:
        """Number of workers that sample: those of the last stages."""
        return self.tensor_parallel * self.data_parallel

    def workers_of(self, node: int) -> range:
        """Return the workers of an engine core that are on a node."""
        share = self.workers // self.nodes
        return range(node * share, (node + 1) * share)

    def sampling_of(self, node: int) -> range:
        """Return the sampling ranks that are on a node, by their numbers in Hello; none on some nodes."""
        if self.nodes == 1:
            return range(self.sampling_ranks)
        first, here = self.workers - self.tensor_parallel, self.workers_of(node)
        return range(max(here.start - first, 0), max(here.stop - first, 0))

    @property
    def service_socket(self) -> Path:
        """Path of the sidecar's stream socket."""
        return Path(self.run_dir, "service.sock")

    @property
    def telemetry_socket(self) -> Path:
        """Path of the sidecar's datagram socket."""
        return Path(self.run_dir, "telemetry.sock")

    @property
    def heartbeats_file(self) -> Path:
        """Path of the shared-memory heartbeats."""
        return Path(self.run_dir, "heartbeats")

    @property
    def draining_file(self) -> Path:
        """Path of the file that is there while the pod drains; made by the launcher."""
        return Path(self.run_dir, "draining")

    @property
    def is_draining(self) -> bool:
        """Whether that file is there; whatever it is, for the engine's container could put anything there."""
        return os.path.lexists(self.draining_file)

    @property
    def failure_file(self) -> Path:
        """Path of the file that says why a rank did not start; for the launcher."""
        return Path(self.run_dir, "engine-failure")


class ConfigError(Exception):
    """The configuration file is missing or wrong; the message names file and field."""


def encode(config: PodConfig) -> bytes:
    """Return the file's content: indented JSON, the same bytes for the same configuration."""
    return msgspec.json.format(msgspec.json.encode(config, order="deterministic"), indent=2)


def decode(data: bytes, source: str = "configuration") -> PodConfig:
    """Parse a configuration file's content; `source` names it in errors.

    Raises
    ------
    ConfigError
        The data is not JSON, or a field has the wrong type or value.
    """
    try:
        return msgspec.json.decode(data, type=PodConfig)
    except MALFORMED as error:
        raise ConfigError(f"{source}: {error}") from error


def node() -> int:
    """Return which of its replica's pods this is: 0 for the first, and for one that is alone."""
    number = os.environ.get(names.ENV_NODE, "")
    return int(number) if number.isdecimal() else 0


def load() -> PodConfig | None:
    """Read the file that the environment names; None where it names none (not one of our pods).

    Raises
    ------
    ConfigError
        The file cannot be read or is wrong.
    """
    path = os.environ.get(names.ENV_CONFIG)
    if not path:
        return None
    try:
        pod = decode(Path(path).read_bytes(), path)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    return msgspec.structs.replace(pod, telemetry=pod.telemetry.within(os.environ))
