"""Names that more than one deployable uses: API group, labels, environment and ports."""

from typing import Final

API_GROUP: Final = "guidedmodel.io"
API_VERSION: Final = "v1alpha1"
KIND: Final = "GuidedModel"
PLURAL: Final = "guidedmodels"

# The one environment variable that every process of a pod reads: the path of the configuration file.
ENV_CONFIG: Final = "GUIDEDMODEL_CONFIG"
# Set by the launcher for its children: the same for all processes of one engine start.
ENV_BOOT: Final = "GUIDEDMODEL_BOOT"

# Of both containers, from Secrets: what clients of the engine send, and the hub asks for.
ENV_API_KEY: Final = "VLLM_API_KEY"
ENV_HUB_TOKEN: Final = "HF_TOKEN"  # noqa: S105 - a name

# Keys of `sampling_params.extra_args` (which clients can reach as `vllm_xargs`) that begin so are ours;
# admission refuses a client's.
RESERVED_PREFIX: Final = "guided_"
# Such keys that a client may send, by what guidedDecoding.requestOptions calls the choice: a wire.Backend, or
# values of guidedDecoding in lower case;
OPTION_ARGS: Final = {
    "Backend": "guided_backend",
    "Whitespace": "guided_whitespace",
    "UnsupportedKeywords": "guided_unsupported_keywords",
}
# and the name of a grammar of guidedDecoding.grammars, in place of a constraint of the request's own.
GRAMMAR_ARG: Final = "guided_grammar"
CLIENT_ARGS: Final = frozenset((*OPTION_ARGS.values(), GRAMMAR_ARG))
# Of a response: a JSON array of JSONPaths, what of its grammar is not enforced, as was allowed.
UNENFORCED_HEADER: Final = "x-guidedmodel-unenforced"
# A JSON array of keys of its request that vLLM does not know, and so ignores.
IGNORED_HEADER: Final = "x-guidedmodel-ignored"
# The admitted request's ticket on its way to the ranks, a mapping made by wire.Ticket.
TICKET_ARG: Final = "guided_ticket"


# Integer ports, because a probe by another container's port *name* never fails (FACTS, section 6).
ENGINE_PORT: Final = 8000  # vLLM's HTTP API
LAUNCHER_PORT: Final = 8001  # /startupz /livez of the engine container
SIDECAR_PORT: Final = 8002  # /startupz /readyz /status /metrics of the sidecar container
RANKS_PORT: Final = 8004  # where the ranks of several nodes meet, on the first
NODES_PORT: Final = 8005  # the first node's sidecar, for the other nodes' ranks

# In the engine container's last line, before what kept a rank from starting: its class and its words.
NOT_STARTED: Final = "the engine did not start: "

LABEL_NAME: Final = f"{API_GROUP}/name"
LABEL_REVISION: Final = f"{API_GROUP}/revision"
# As the LeaderWorkerSet's controller labels the pods of a group, and tells them by their environment.
LABEL_GROUP: Final = "leaderworkerset.sigs.k8s.io/group-index"
LABEL_NODE: Final = "leaderworkerset.sigs.k8s.io/worker-index"
ANNOTATION_NODES: Final = "leaderworkerset.sigs.k8s.io/size"
ENV_NODE: Final = "LWS_WORKER_INDEX"
ENV_LEADER: Final = "LWS_LEADER_ADDRESS"
ANNOTATION_APPLIED: Final = f"{API_GROUP}/applied-hash"

ENGINE_CONTAINER: Final = "engine"
SIDECAR_CONTAINER: Final = "sidecar"
PLUGIN_CONTAINER: Final = "plugin"
