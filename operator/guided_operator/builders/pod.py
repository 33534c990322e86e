"""The pod template: engine, native sidecar of the same image, and the container that copies the plugin."""

from typing import Final

from guided_contract import names
from guided_operator.api import GuidedModel
from guided_operator.builders import probes, resources, volumes
from guided_operator.builders.arguments import engine_arguments
from guided_operator.builders.drain import grace_period_s, lifecycle
from guided_operator.builders.environment import engine_environment, sidecar_environment
from guided_operator.builders.objects import Object, given, labels, selector
from guided_operator.builders.pod_paths import PLUGIN_DIR, PLUGIN_SOURCE, Site
from guided_operator.builders.revision_key import pod_key, revision_name

# What the user says in a pod's own words. Each part is taken by its name, so nothing else of `spec.pod` can
# reach a pod; the API server judges what it holds.
_AS_WRITTEN: Final = ("nodeSelector", "tolerations", "affinity", "priorityClassName", "schedulerName")


def pod_template(gm: GuidedModel, site: Site) -> Object:
    """Return the template of the model's pods."""
    own, key = gm.spec.pod, pod_key(gm)
    user_id = own.run_as_user or site.user_id
    secrets = dict.fromkeys([*(secret.name for secret in own.image_pull_secrets), *site.pull_secrets])
    made = volumes.volumes(gm, site, revision_name(gm.name, key))
    annotations = {
        # Nothing in them outlives the pod; else the autoscaler would keep its node for their sake.
        "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": volumes.on_node(made),
        **own.annotations,
        "kubectl.kubernetes.io/default-container": names.ENGINE_CONTAINER,
    }
    plugin = [_plugin(site)] if site.in_cluster else []
    spec = given(
        automountServiceAccountToken=False,
        containers=[_escaped(_engine(gm, site))],
        # A Service named "vllm" would otherwise set VLLM_PORT, and so vLLM's port, in every pod.
        enableServiceLinks=False,
        imagePullSecrets=[{"name": name} for name in secrets] or None,
        initContainers=[_escaped(each) for each in (*plugin, _sidecar(gm, site))],
        runtimeClassName=own.runtime_class_name,
        securityContext=given(
            fsGroup=own.fs_group,
            # Else the kubelet changes each file of a large volume at each start.
            fsGroupChangePolicy="OnRootMismatch" if own.fs_group else None,
            runAsGroup=user_id,
            runAsNonRoot=True,
            runAsUser=user_id,
            seccompProfile={"type": "RuntimeDefault"},
        ),
        serviceAccountName=own.service_account_name or gm.name,
        terminationGracePeriodSeconds=grace_period_s(gm, site),
        volumes=[*made, *volumes.own_volumes(gm)],
    )
    return {
        "metadata": {
            "annotations": annotations,
            "labels": {**own.labels, **labels(gm), names.LABEL_REVISION: key},
        },
        "spec": spec | _as_written(gm),
    }


def passed_on(word: str) -> str:
    """Return what the kubelet makes of an escaped word."""
    return word.replace("$$", "$")


def _engine(gm: GuidedModel, site: Site) -> Object:
    return {
        "args": engine_arguments(gm, site),
        "command": [site.python, "-m", "guided_engine.launcher", "--"],
        "env": engine_environment(gm, site),
        "image": gm.spec.engine.image,
        "lifecycle": lifecycle(),
        "livenessProbe": probes.engine_liveness(site),
        "name": names.ENGINE_CONTAINER,
        "ports": [
            {"containerPort": site.ports.engine, "name": "http"},
            {"containerPort": site.ports.launcher, "name": "launcher"},
        ],
        "resources": resources.engine_resources(gm),
        "securityContext": _locked_down(),
        "startupProbe": probes.engine_startup(gm, site),
        "terminationMessagePolicy": "FallbackToLogsOnError",  # its last words are in the pod's status
        "volumeMounts": volumes.engine_mounts(gm, site),
    }


def _sidecar(gm: GuidedModel, site: Site) -> Object:
    return {
        "command": [site.python, "-m", "guided_sidecar"],
        "env": sidecar_environment(gm, site),
        "image": gm.spec.engine.image,  # its grammar libraries are then the engine's
        "lifecycle": lifecycle(),
        "name": names.SIDECAR_CONTAINER,
        "ports": [{"containerPort": site.ports.sidecar, "name": "sidecar"}],
        "readinessProbe": probes.sidecar_readiness(site),
        "resources": resources.sidecar_resources(gm),
        "restartPolicy": "Always",  # makes it a native sidecar: started before the engine, stopped after it
        "securityContext": _locked_down(),
        "startupProbe": probes.sidecar_startup(site),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": volumes.sidecar_mounts(gm, site),
    }


def _plugin(site: Site) -> Object:
    return given(
        # Runs again when the node rebuilds the pod's sandbox, over what the first run left.
        command=["cp", "-r", f"{PLUGIN_SOURCE}/.", PLUGIN_DIR],
        image=site.plugin_image,
        imagePullPolicy=site.plugin_pull_policy or None,
        name=names.PLUGIN_CONTAINER,
        resources=resources.plugin_resources(),
        securityContext=_locked_down(),
        terminationMessagePolicy="FallbackToLogsOnError",
        volumeMounts=volumes.plugin_mounts(),
    )


def _locked_down() -> Object:
    """Return what Kubernetes' restricted Pod Security standard asks for, and a read-only root."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }


def _escaped(container: Object) -> Object:
    """Return the container with words and variables that the kubelet passes on as they stand.

    It takes `$(NAME)` for a variable, which could hold an argument that is not allowed, and `$$` for `$`. It
    leaves preStop hooks alone.
    """
    for words in ("command", "args"):
        if words in container:
            container[words] = [word.replace("$", "$$") for word in container[words]]
    for variable in container.get("env", ()):
        if "value" in variable:
            variable["value"] = variable["value"].replace("$", "$$")
    return container


def _as_written(gm: GuidedModel) -> Object:
    own = gm.spec.pod.model_dump(by_alias=True, exclude_defaults=True)
    parts: Object = {name: own[name] for name in _AS_WRITTEN if name in own}
    spread = [_of_this_model(gm, each) for each in gm.spec.pod.topology_spread_constraints]
    claims = [*gm.spec.engine.accelerator.claims, *gm.spec.pod.resource_claims]
    return parts | given(topologySpreadConstraints=spread or None, resourceClaims=claims or None)


def _of_this_model(gm: GuidedModel, spread: Object) -> Object:
    """Return a constraint with what it counts: this model's pods, and none of the revision that goes."""
    if "labelSelector" in spread:
        return spread
    ours = {"labelSelector": {"matchLabels": selector(gm)}, "matchLabelKeys": [names.LABEL_REVISION]}
    return {**ours, **spread}
