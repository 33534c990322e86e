"""The connections to the API server: whose credentials, how many, and how soon a dead one is given up."""

import os
import socket
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
from kubernetes.aio import client, config

# What was sent and not received is sent again by the kernel for so long, then never: also for a process that
# is frozen or has ended. A leader cut off thus cannot write once the network is back: its last write leaves
# before its Lease's deadline, and a standby takes over this much later (lease.DURATION_S).
UNSENT_MS: Final = 3000
_IDLE_S, _PROBE_S = 20, 5  # a connection that carries nothing is looked at so often
# A watch event is one line, of up to twice this: an object has up to 1.5 MiB, and Go writes `<` in six bytes.
_EVENT_BYTES: Final = 5 << 20


@asynccontextmanager
async def connected(agent: str, *traces: aiohttp.TraceConfig) -> AsyncIterator[client.ApiClient]:
    """Connect by the pod's service account, or outside a cluster by the kubeconfig.

    Each request is told to `traces`.
    """
    configuration = client.Configuration()
    if os.environ.get("KUBERNETES_SERVICE_HOST"):  # set by the kubelet in every pod
        config.load_incluster_config(client_configuration=configuration)
    else:
        await config.load_kube_config(client_configuration=configuration)
    async with opened(configuration, agent, *traces) as transport:
        yield transport


@asynccontextmanager
async def opened(
    configuration: client.Configuration, agent: str, *traces: aiohttp.TraceConfig
) -> AsyncIterator[client.ApiClient]:
    """Connect as configured; each request is told to `traces`."""
    transport = client.ApiClient(configuration)
    transport.user_agent = agent
    transport.rest_client.pool_manager = _session(transport, traces)
    async with transport:
        yield transport


def another_session(
    transport: client.ApiClient, answers: type[aiohttp.ClientResponse], traces: Sequence[aiohttp.TraceConfig]
) -> aiohttp.ClientSession:
    """Return a session of the same credentials, for others' requests, whose answers are of this class."""

    async def authorize(_session: Any, _context: Any, request: aiohttp.TraceRequestStartParams) -> None:
        await transport.update_params_for_auth(
            request.headers, [], ["BearerToken"], request.url.path, request.method, None
        )

    authorized = aiohttp.TraceConfig()
    authorized.on_request_start.append(authorize)
    return _session(transport, (authorized, *traces), response_class=answers)


def _session(
    transport: client.ApiClient, traces: Sequence[aiohttp.TraceConfig], **options: Any
) -> aiohttp.ClientSession:
    configuration = transport.configuration
    # No limit: a watch holds a connection for each kind in each namespace, and the rest is bounded elsewhere.
    connector = aiohttp.TCPConnector(
        limit=0, ssl=transport.rest_client.ssl_context, socket_factory=open_socket
    )
    return aiohttp.ClientSession(
        connector=connector,
        headers=transport.default_headers,
        proxy=configuration.proxy or _proxy(configuration.host),
        read_bufsize=_EVENT_BYTES,
        trace_configs=list(traces),
        **options,
    )


def _proxy(url: str) -> str | None:
    # Once: aiohttp, told to trust the environment, asks two threads about it for every request, which takes
    # longer than the request.
    parts = urllib.parse.urlsplit(url)
    if urllib.request.proxy_bypass(parts.netloc):
        return None
    return urllib.request.getproxies().get(parts.scheme)


def open_socket(address: Any) -> socket.socket:
    """Return a socket of an address that gives a dead connection up."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_USER_TIMEOUT", UNSENT_MS),  # Linux
        ("TCP_KEEPIDLE", _IDLE_S),
        ("TCP_KEEPINTVL", _PROBE_S),
    ):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made
