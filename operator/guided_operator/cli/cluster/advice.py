"""What to do next: for every reason of a condition, and every code of a failure, one action.

Every reason that the operator or a sidecar can give stands here; a test reads them from the source. None:
nothing is to be done. `{gm}` becomes the resource, `{pods}` what selects its pods, for kubectl.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from guided_contract import names
from guided_contract.errors import ErrorCode
from guided_contract.reasons import NotReadyReason

_LOGS: Final = "kubectl logs {pods} --all-containers --tail=50"
_DESCRIBE: Final = "kubectl describe pods {pods}"
_FIX_CONFIG: Final = "create the Secret or ConfigMap that the message names"

REASONS: Final[Mapping[str, str | None]] = {
    # Compatible
    "Supported": None,
    "Invalid": "correct the fields that the message names; guidedmodel validate checks them beforehand",
    "UnsupportedVLLM": "set spec.engine.image to a vLLM that the message calls supported, or "
    "guidedDecoding.placement to Scheduler for vLLM's own path",
    # Ready and Progressing
    "Incompatible": None,  # the condition Compatible has its own
    "PodsReady": None,
    "Complete": None,
    "Creating": "wait: kubectl wait --for=condition=Ready {gm} --timeout=20m",
    "Progressing": "wait: kubectl wait --for=condition=Ready {gm} --timeout=20m",
    "RollingOut": "wait: kubectl wait --for=condition=Ready {gm} --timeout=20m",
    "ScaledToZero": "for pods: kubectl scale {gm} --replicas=1",
    "PodsNotReady": f"see what the pods wait for: {_DESCRIBE}; {_LOGS}",
    "ProgressDeadlineExceeded": f"see why new pods do not get ready: {_LOGS}; going back to the spec before "
    "takes the pods that serve as they are",
    "NameConflict": "rename this GuidedModel, or delete the object of somebody else that the message names",
    "APIMissing": "install what the message names; the operator finds it by itself",
    "Forbidden": "give the operator's service account the right that the message names",
    "ApplyRefused": "change what the message names: a policy or quota of the cluster, or the spec",
    "PodsRefused": "raise the quota, or change the policy, that the message names",
    "Unschedulable": "add nodes or free resources, or ask for less in spec.resources and spec.parallelism",
    "ImagePullFailed": "correct spec.engine.image or the registry's credentials; the node tries again",
    "CreateContainerConfigError": f"{_FIX_CONFIG}; the kubelet tries again by itself",
    "CreateContainerError": f"see what the container runtime says: {_DESCRIBE}",
    "RunContainerError": f"see what the container runtime says: {_DESCRIBE}",
    "ContainerCreating": f"see which image or volume the pod waits for: {_DESCRIBE}",
    "EngineStarting": "wait: the engine downloads and loads its model; probes.startupTimeout bounds it",
    "OutOfMemory": "raise spec.resources.limits.memory, or lower engine.maxModelLen or maxNumSeqs",
    "ModelDownloadFailed": "correct spec.model, the token that it needs (engine.env HF_TOKEN), the way to "
    "the hub, or the disk's size, as the last words say",
    "PluginIncompatible": "set engine.image to a supported vLLM, or guidedDecoding.placement to Scheduler",
    "Paused": "to go on with the rollout, set rollout.paused to false",
    "RolledBack": None,
    "ContainerCrashed": "see its last words: kubectl logs {pods} -c engine --previous --tail=50",
    # Available
    "SomePodsReady": None,
    "NoReadyPods": f"see what the pods wait for: {_DESCRIBE}; {_LOGS}",
    # GuidedDecoding
    "Active": None,
    "LibrariesUnmeasured": "JSON schemas that only this library enforces are refused; to have them served, "
    "install the version that the message says is measured, or name the library by guidedDecoding.backend",
    "SchedulerPlacement": None,
    "Pending": "wait: kubectl wait --for=condition=GuidedDecoding {gm} --timeout=20m",
    NotReadyReason.PLUGIN_INACTIVE: "while the engine starts, wait; else see what it says: "
    "kubectl logs {pods} -c engine --tail=50",
    NotReadyReason.TOKENIZERS_DIFFER: "take --tokenizer-mode, --config-format and --hf-overrides out of "
    "engine.args, which vLLM alone heeds; if the model changed on the hub, set model.revision to a commit; "
    "or set guidedDecoding.placement to Scheduler for vLLM's own path",
    NotReadyReason.RANKS_MISSING: "while the engine starts, wait; else see what the ranks say: "
    "kubectl logs {pods} -c engine --tail=50",
    NotReadyReason.DRAINING: "wait: the pod was told to stop; it goes once requests in progress are answered",
    NotReadyReason.GRAMMARS_PENDING: "correct the ConfigMap or text that the message names; pods take it up "
    "by themselves",
    NotReadyReason.PROBE_PENDING: "wait: the first guided request to the engine is being answered",
    NotReadyReason.PROBE_FAILED: f"see what the engine answered: {_LOGS}; it is asked again",
    NotReadyReason.ENGINE_STALLED: "see what it was doing: kubectl logs {pods} -c engine --tail=50; it is "
    "restarted after probes.stallTimeout",
    NotReadyReason.SERVICE_EXHAUSTED: "find the grammar that kills workers by the last failure; keep it "
    "away, or raise compile.memory or compile.timeout; the budget is restored "
    "after sidecar.restart.resetAfter",
    NotReadyReason.NOT_READY: "see what the sidecar says: kubectl logs {pods} -c sidecar --tail=50",
    "Desync": "report it with kubectl logs {pods} --all-containers; onDesync: FallBackToScheduler serves on "
    "meanwhile, and deleting the pod starts afresh",
    "SidecarUnreachable": f"let the operator reach port {names.SIDECAR_PORT} of the pods, through "
    "NetworkPolicies and meshes",
    # Telemetry
    "Disabled": None,
    "Configured": None,
}

CODES: Final[Mapping[str, str]] = {
    ErrorCode.GRAMMAR_INVALID: "the client must correct its schema, regex or grammar",
    ErrorCode.GRAMMAR_TOO_LARGE: "the client must send less; or raise compile.maxSchemaSize or maxDepth",
    ErrorCode.GRAMMAR_UNSUPPORTED: "the client must do without the keyword; docs/json-schema.md lists them",
    ErrorCode.GRAMMAR_DEAD_END: "the client must correct its grammar: it reaches a point where nothing fits",
    ErrorCode.GRAMMAR_SLOW: "the client must simplify its grammar",
    ErrorCode.GRAMMAR_COMPILE_TIMEOUT: "the client must simplify its grammar, or raise compile.timeout",
    ErrorCode.GRAMMAR_COMPILE_CRASHED: "keep the grammar away, and report it: it crashes its library",
    ErrorCode.GRAMMAR_COMPILE_MEMORY: "the client must simplify its grammar, or raise compile.memory",
    ErrorCode.GRAMMAR_LOAD_FAILED: "see what the ranks say in the engine's log",
    ErrorCode.GRAMMAR_SERVICE_EXHAUSTED: "keep the grammar that kills workers away, or raise sidecar.restart",
    ErrorCode.GRAMMAR_SERVICE_UNAVAILABLE: "see why the sidecar does not answer, in its log",
    ErrorCode.GRAMMAR_RANKS_NOT_READY: "wait: clients are told to come again",
    ErrorCode.GRAMMAR_TOKENIZERS_DIFFER: "see what the condition GuidedDecoding says of the tokenizers",
    ErrorCode.GRAMMAR_RANK_GONE: "see why a rank ended, in the engine's log",
    ErrorCode.GRAMMAR_RANK_LATE: "give the engine more CPU: a rank had no time to load the grammar",
    ErrorCode.GRAMMAR_RANK_RESTARTED: "see why a rank came back, in the engine's log",
    ErrorCode.GRAMMAR_STORAGE_FULL: "raise the sidecar's memory limit, or lower compile.cacheSize",
    ErrorCode.GRAMMAR_UNKNOWN: "the client must name a grammar of spec.guidedDecoding.grammars",
    ErrorCode.REQUEST_RESERVED_ARGUMENT: "the client must leave our keys out of vllm_xargs",
    ErrorCode.REQUEST_NOT_ADMITTED: "the client must take a route that docs/routes.md calls served",
    ErrorCode.SEQUENCE_DEAD_END: "report the grammar: its proof did not find the dead end",
    ErrorCode.SEQUENCE_TOKEN_REJECTED: "report the grammar with the engine's log",
    ErrorCode.SEQUENCE_MATCHER_FAILED: "report the grammar with the engine's log",
    ErrorCode.SEQUENCE_PROCESSOR_FAILED: "correct the logits processor; the engine's log has its exception",
    ErrorCode.RANKS_DESYNCHRONIZED: "report it with the logs of all containers",
    "guided_probe_failed": "see what the engine answered, in its log; it is asked again",
}

_UNSEEN: Final = (
    "no operator has looked at it: see that one runs and watches namespace {namespace}: "
    "kubectl get pods -A -l app.kubernetes.io/name=guidedmodel-operator"
)
_BEHIND: Final = "the operator has not acted on the last change yet: wait, or see that it runs"
_UNKNOWN: Final = "this command does not know the reason {reason}: its message says why; take a newer release"
# What says no more than that something is not ready yet: told where nothing else is.
_GENERAL: Final = frozenset(
    {
        "Creating",
        "EngineStarting",
        "NoReadyPods",
        "Pending",
        "PodsNotReady",
        NotReadyReason.PROBE_PENDING,
        "Progressing",
        "RollingOut",
    }
)


def steps(model: Mapping[str, Any]) -> list[str]:
    """Return what to do next about a GuidedModel as the API server has it; [] if nothing."""
    metadata, status = model["metadata"], model.get("status") or {}
    namespace, name = metadata.get("namespace", "default"), metadata["name"]
    if not status.get("conditions"):
        return [_UNSEEN.format(namespace=namespace)]
    reasons = dict.fromkeys(_reasons(status["conditions"]))
    if len(reasons) > 1 and any(reason not in _GENERAL for reason in reasons):
        reasons = {reason: None for reason in reasons if reason not in _GENERAL}
    found = [REASONS.get(reason) or _UNKNOWN.format(reason=reason) for reason in reasons]
    if status.get("observedGeneration", 0) < metadata.get("generation", 0):
        found.insert(0, _BEHIND)
    gm = f"gm/{name} -n {namespace}"
    pods = f"-n {namespace} -l {names.LABEL_NAME}={name}"
    return list(dict.fromkeys(text.replace("{gm}", gm).replace("{pods}", pods) for text in found))


def _reasons(conditions: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the reasons that ask for something, those of the spec itself first."""
    for condition in sorted(conditions, key=lambda each: each.get("type") != "Compatible"):
        reason = condition.get("reason", "")
        if REASONS.get(reason, "") is None:
            continue
        if reason in REASONS or condition.get("status") != "True":
            yield reason
