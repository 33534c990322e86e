"""The pod template: engine, native sidecar from the engine's own image, and what copies the plugin."""

from typing import Final

from kubernetes.aio import client as k8s

from guided_contract import names
from guided_operator.api import GuidedModel
from guided_operator.api.pod_spec import Resources
from guided_operator.builders import probes, volumes
from guided_operator.builders.arguments import engine_arguments
from guided_operator.builders.environment import engine_environment, sidecar_environment
from guided_operator.builders.key import pod_key
from guided_operator.builders.labels import labels
from guided_operator.builders.site import PLUGIN_SOURCE, Site

GPU: Final = "nvidia.com/gpu"
USER_ID: Final = 10001  # no user of the image or, likely, of the node
GRACE_PERIOD_S: Final = 60
# Until then, proxies and gateways may still send requests to a pod that is going away.
_ENDPOINT_LAG_S: Final = 5


def pod_template(gm: GuidedModel, site: Site, config_map: str) -> k8s.V1PodTemplateSpec:
    """Return the template of the model's pods."""
    revision = pod_key(gm)
    return k8s.V1PodTemplateSpec(
        metadata=k8s.V1ObjectMeta(
            labels={**labels(gm), names.LABEL_REVISION: revision},
            annotations={"kubectl.kubernetes.io/default-container": names.ENGINE_CONTAINER},
        ),
        spec=k8s.V1PodSpec(
            service_account_name=gm.name,
            automount_service_account_token=False,
            # A Service named "vllm" would otherwise set VLLM_PORT, and so vLLM's port, in every pod.
            enable_service_links=False,
            runtime_class_name=gm.spec.engine.runtime_class_name,
            termination_grace_period_seconds=GRACE_PERIOD_S,
            security_context=k8s.V1PodSecurityContext(
                run_as_non_root=True,
                run_as_user=USER_ID,
                run_as_group=USER_ID,
                seccomp_profile=k8s.V1SeccompProfile(type="RuntimeDefault"),
            ),
            init_containers=[*_plugin(gm, site), _sidecar(gm, site)],
            containers=[_engine(gm, site)],
            volumes=volumes.volumes(gm, site, config_map),
        ),
    )


def _engine(gm: GuidedModel, site: Site) -> k8s.V1Container:
    return k8s.V1Container(
        name=names.ENGINE_CONTAINER,
        image=gm.spec.engine.image,
        command=[site.python, "-m", "guided_engine.launcher", "--"],
        args=engine_arguments(gm, site),
        env=engine_environment(gm, site),
        ports=[
            k8s.V1ContainerPort(name="http", container_port=site.ports.engine),
            k8s.V1ContainerPort(name="launcher", container_port=site.ports.launcher),
        ],
        resources=_engine_resources(gm),
        startup_probe=probes.engine_startup(gm, site),
        liveness_probe=probes.engine_liveness(site),
        lifecycle=k8s.V1Lifecycle(
            pre_stop=k8s.V1LifecycleHandler(sleep=k8s.V1SleepAction(seconds=_ENDPOINT_LAG_S))
        ),
        security_context=_locked_down(),
        volume_mounts=volumes.engine_mounts(gm, site),
    )


def _sidecar(gm: GuidedModel, site: Site) -> k8s.V1Container:
    return k8s.V1Container(
        name=names.SIDECAR_CONTAINER,
        image=gm.spec.engine.image,  # its grammar libraries are then the engine's
        restart_policy="Always",  # makes it a native sidecar: started before the engine, stopped after it
        command=[site.python, "-m", "guided_sidecar"],
        env=sidecar_environment(gm, site),
        ports=[k8s.V1ContainerPort(name="sidecar", container_port=site.ports.sidecar)],
        resources=_resources(gm.spec.sidecar.resources),
        startup_probe=probes.sidecar_startup(site),
        readiness_probe=probes.sidecar_readiness(site),
        security_context=_locked_down(),
        volume_mounts=volumes.sidecar_mounts(gm, site),
    )


def _plugin(gm: GuidedModel, site: Site) -> list[k8s.V1Container]:
    if gm.spec.engine.plugin != "Inject" or not site.plugin_dir:
        return []
    container = k8s.V1Container(
        name=names.PLUGIN_CONTAINER,
        image=site.plugin_image,
        # Runs again when the node rebuilds the pod's sandbox, over what the first run left.
        command=["cp", "-r", f"{PLUGIN_SOURCE}/.", site.plugin_dir],
        resources=k8s.V1ResourceRequirements(
            requests={"cpu": "10m", "memory": "32Mi"}, limits={"memory": "128Mi"}
        ),
        security_context=_locked_down(),
        volume_mounts=volumes.plugin_mounts(site),
    )
    return [container]


def _engine_resources(gm: GuidedModel) -> k8s.V1ResourceRequirements:
    resources = gm.spec.resources
    if gm.spec.engine.device == "CPU":
        return _resources(resources)
    gpus = {GPU: str(gm.spec.parallelism.ranks)}
    # The server adds requests equal to these limits; written out, the live object equals the wanted one.
    return _resources(Resources(requests=resources.requests | gpus, limits=resources.limits | gpus))


def _resources(resources: Resources) -> k8s.V1ResourceRequirements:
    return k8s.V1ResourceRequirements(requests=resources.requests or None, limits=resources.limits or None)


def _locked_down() -> k8s.V1SecurityContext:
    """Return what Kubernetes' restricted Pod Security standard asks for, and a read-only root."""
    return k8s.V1SecurityContext(
        allow_privilege_escalation=False,
        capabilities=k8s.V1Capabilities(drop=["ALL"]),
        read_only_root_filesystem=True,
    )
