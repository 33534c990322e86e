"""The sidecar's settings: its configuration file, and constants that no user sets.

The only reader of the environment.
"""

import dataclasses
import os

from guided_contract import config, names, otel_variables
from guided_contract.config import PodConfig


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """What the service needs to know; times in seconds, sizes in bytes.

    Tests make their own; the service takes `load()`.
    """

    pod: PodConfig
    api_key: str = ""  # what the engine's clients must send, the guided probe too; "": nothing
    node: int = 0  # which of its replica's pods this is; the first has the API server and the engine core
    leader: str = "127.0.0.1"  # address of the first one
    hello_timeout_s: float = 5.0  # a peer that has not said who it is holds no connection for longer
    max_connections: int = 256  # of each socket; a pod has some ten, the rest is somebody's mistake
    max_pending_bytes: int = 32 << 20  # of prepares under way; more are refused, not queued
    max_unsent_bytes: int = 16 << 20  # a peer that does not read is cut off rather than buffered for
    cache_entries: int = 512  # grammars kept compiled without a lease
    cache_bytes: int = 256 << 20  # of their texts, or of what ranks hold of these
    room_bytes: int = 512 << 20  # the same with what leases hold: past it, a new grammar is refused
    refusal_entries: int = 2048  # refusals remembered, so that a repeated bad schema costs nothing
    refusal_s: float = 30.0  # for so long
    jobs_per_worker: int = (
        64  # compiles until a worker is replaced: fragmentation and native leaks end with it
    )
    most_deaths: int = 10  # of workers in a row, before new grammars are refused while there is none
    restart_delay_s: float = 0.1  # after the first of them, doubled after each
    most_restart_delay_s: float = 30.0
    fork_timeout_s: float = 5.0  # the template answers in milliseconds; a silent one is replaced
    template_timeout_s: float = 300.0  # importing and reading a tokenizer from cold network storage


def load() -> Settings:
    """Read the configuration file that the environment names.

    Raises
    ------
    config.ConfigError
        None is named, or it is wrong; the message says what.
    """
    pod = config.load()
    if pod is None:
        raise config.ConfigError("GUIDEDMODEL_CONFIG names no configuration file")
    told = otel_variables.environment(pod, os.environ)
    # Heeded by now. The SDK itself would make no spans, by which grammars are measured for Prometheus.
    told.pop("OTEL_SDK_DISABLED", None)
    os.environ.clear()
    os.environ.update(told)
    return Settings(
        pod=pod,
        api_key=os.environ.get(names.ENV_API_KEY, ""),
        node=config.node() if pod.nodes > 1 else 0,
        leader=os.environ.get(names.ENV_LEADER, "127.0.0.1"),
    )
