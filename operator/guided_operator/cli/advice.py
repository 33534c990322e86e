"""What to do next: for every reason of a condition one action.

Every reason that the operator or a sidecar can give stands here; a test reads them from the source. None:
nothing is to be done. For kubectl `{gm}` becomes the resource, `{pods}` what selects its pods.
"""

from collections.abc import Mapping
from typing import Any, Final

from guided_contract import names
from guided_contract.status import NotReadyReason

_LOGS: Final = "kubectl logs {pods} --all-containers --tail=50"
_DESCRIBE: Final = "kubectl describe pods {pods}"

REASONS: Final[Mapping[str, str | None]] = {
    # Compatible
    "Supported": None,
    "Invalid": "correct the fields in the message; `guidedmodel validate` checks a manifest "
    "before it is applied",
    "UnsupportedVLLM": "set engine.image to one of the supported versions in the message, or "
    "guidedDecoding.placement to Scheduler",
    # Ready and Progressing
    "Incompatible": None,  # the condition Compatible has its own
    "PodsReady": None,
    "Complete": None,
    "Creating": "wait: kubectl wait --for=condition=Ready {gm} --timeout=20m",
    "Progressing": "wait: kubectl wait --for=condition=Ready {gm} --timeout=20m",
    "RollingOut": "wait: kubectl wait --for=condition=Ready {gm} --timeout=20m",
    "ScaledToZero": "to start pods: kubectl scale {gm} --replicas=1",
    "PodsNotReady": f"see what the pods are waiting for: {_DESCRIBE}; {_LOGS}",
    "ProgressDeadlineExceeded": f"see why new pods do not become ready: {_LOGS}; applying the "
    f"previous spec again keeps the pods that still serve",
    "NameConflict": "rename this GuidedModel, or delete the object in the message, which has another owner",
    "APIMissing": "install the API in the message; the operator detects it",
    "Forbidden": "grant the permission in the message to the operator's ServiceAccount, or raise the quota",
    "ApplyRefused": "change the policy or quota that the message names, or the spec",
    "PodsRefused": "raise the quota, or change the policy, that the message names",
    "Unschedulable": "add nodes or free resources, or request less in spec.resources and spec.parallelism",
    "ImagePullFailed": "correct engine.image or pod.imagePullSecrets; the kubelet retries",
    "CreateContainerConfigError": "create the Secret or ConfigMap in the message; the kubelet retries",
    "CreateContainerError": f"see what the container runtime says: {_DESCRIBE}",
    "RunContainerError": f"see what the container runtime says: {_DESCRIBE}",
    "ContainerCreating": f"see which image or volume the pod is waiting for: {_DESCRIBE}",
    "EngineStarting": "wait: the engine downloads and loads its model, for at most probes.startupTimeout",
    "OutOfMemory": "raise the limit of the container in the message: spec.resources.limits.memory (or lower "
    "--max-model-len or --max-num-seqs), or sidecar.resources.limits.memory (or lower "
    "guidedDecoding.compile.memory)",
    "ModelDownloadFailed": "see the last output in the message, then correct model.uri, "
    "the token (model.authSecretKeyRef), the network path to the Hugging Face hub or storage.hub",
    "RefusedAtStart": "change the setting that vLLM names at the end of the message, or the model",
    "PluginIncompatible": "set engine.image to a supported vLLM, or guidedDecoding.placement to Scheduler",
    "Paused": "to resume the rollout, set rollout.paused to false",
    "RolledBack": None,
    "ContainerCrashed": "see the last output of the pod and container in the message: kubectl logs {pods} "
    "--all-containers --ignore-errors --previous --tail=50",
    # Available
    "SomePodsReady": None,
    "NoReadyPods": f"see what the pods are waiting for: {_DESCRIBE}; {_LOGS}",
    # GuidedDecoding
    "Active": None,
    "LibrariesUnmeasured": "JSON schemas that only this library enforces are refused; to serve "
    "them, use an image with the tested version in the message, or set guidedDecoding.backend "
    "to the library",
    "SchedulerPlacement": None,
    "Pending": "wait: kubectl wait --for=condition=GuidedDecoding {gm} --timeout=20m",
    NotReadyReason.PLUGIN_INACTIVE: "wait while the engine starts; otherwise see its log: "
    "kubectl logs {pods} -c engine --tail=50",
    NotReadyReason.TOKENIZERS_DIFFER: "remove --tokenizer-mode, --config-format and "
    "--hf-overrides from engine.args, because the sidecar does not see them; if the model changed "
    "on the hub, set model.revision to a commit; or set guidedDecoding.placement to Scheduler",
    NotReadyReason.RANKS_MISSING: "wait while the engine starts; otherwise see the log of the ranks: "
    "kubectl logs {pods} -c engine --tail=50",
    NotReadyReason.DRAINING: "wait: the pod is stopping and finishes its in-flight requests",
    NotReadyReason.GRAMMARS_PENDING: "wait while grammars compile; otherwise correct the ConfigMap or "
    "grammar in the message: running pods load the change",
    NotReadyReason.PROBE_PENDING: "wait: the guided probe has not passed yet",
    NotReadyReason.PROBE_FAILED: f"see what the engine answered: {_LOGS}; the probe is repeated",
    NotReadyReason.ENGINE_STALLED: "see the engine's log: kubectl logs {pods} -c engine "
    "--tail=50; the engine is restarted after probes.stallTimeout",
    NotReadyReason.SERVICE_EXHAUSTED: "find what kills grammar workers: the last failure in the message, and "
    "the sidecar's log; a new worker starts every 30 seconds",
    NotReadyReason.NOT_READY: "see the sidecar's log: kubectl logs {pods} -c sidecar --tail=50",
    "Desync": "report it with the output of: kubectl logs {pods} --all-containers; "
    "delete the pod to start over",
    "SidecarUnreachable": f"allow the operator to connect to port {names.SIDECAR_PORT} of the "
    f"pods: check NetworkPolicies and service mesh",
    # AuxiliaryResourcesReady, with reasons of Ready
    "Applied": None,
}

_UNSEEN: Final = (
    "no operator has seen it: check that one runs and serves namespace {namespace}: "
    "kubectl get pods -A -l app.kubernetes.io/name=guidedmodel-operator"
)
_BEHIND: Final = "the operator has not acted on the last change yet: wait, or check that it runs"
_UNKNOWN: Final = "reason {reason} is unknown to this release: see its message, or use a newer release"
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
    found: dict[str, str] = {}
    # Those of the spec itself first.
    for condition in sorted(status["conditions"], key=lambda each: each.get("type") != "Compatible"):
        reason = condition.get("reason", "")
        unknown = None if condition.get("status") == "True" else _UNKNOWN.format(reason=reason)
        if text := REASONS.get(reason, unknown):
            found[reason] = text
    if not found.keys() <= _GENERAL:
        found = {reason: text for reason, text in found.items() if reason not in _GENERAL}
    is_behind = status.get("observedGeneration", 0) < metadata.get("generation", 0)
    gm, pods = f"gm/{name} -n {namespace}", f"-n {namespace} -l {names.LABEL_NAME}={name}"
    texts = dict.fromkeys([_BEHIND, *found.values()] if is_behind else found.values())
    return [text.replace("{gm}", gm).replace("{pods}", pods) for text in texts]
