"""The pod template: engine, native sidecar of the same image, and the container that copies the plugin."""

from kubernetes.aio import client as k8s

from guided_contract import names
from guided_operator.api import GuidedModel
from guided_operator.builders import probes, resources, volumes
from guided_operator.builders.arguments import engine_arguments
from guided_operator.builders.drain import grace_period_s, lifecycle
from guided_operator.builders.environment import engine_environment, sidecar_environment
from guided_operator.builders.labels import labels
from guided_operator.builders.literal import escape
from guided_operator.builders.pod_paths import PLUGIN_SOURCE, Site
from guided_operator.builders.revision_key import pod_key


def pod_template(gm: GuidedModel, site: Site, config_map: str) -> k8s.V1PodTemplateSpec:
    """Return the template of the model's pods."""
    own = gm.spec.pod
    user_id = own.run_as_user or site.user_id
    secrets = dict.fromkeys([*(secret.name for secret in own.image_pull_secrets), *site.pull_secrets])
    made = volumes.volumes(gm, site, config_map)
    return k8s.V1PodTemplateSpec(
        metadata=k8s.V1ObjectMeta(
            labels={**own.labels, **labels(gm), names.LABEL_REVISION: pod_key(gm)},
            annotations={
                # Nothing in them outlives the pod; else the autoscaler would keep its node for their sake.
                "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes": volumes.on_node(made),
                **own.annotations,
                "kubectl.kubernetes.io/default-container": names.ENGINE_CONTAINER,
            },
        ),
        spec=k8s.V1PodSpec(
            service_account_name=own.service_account_name or gm.name,
            image_pull_secrets=[k8s.V1LocalObjectReference(name=name) for name in secrets] or None,
            automount_service_account_token=False,
            # A Service named "vllm" would otherwise set VLLM_PORT, and so vLLM's port, in every pod.
            enable_service_links=False,
            runtime_class_name=gm.spec.pod.runtime_class_name,
            termination_grace_period_seconds=grace_period_s(gm, site),
            security_context=k8s.V1PodSecurityContext(
                run_as_non_root=True,
                run_as_user=user_id,
                run_as_group=user_id,
                fs_group=own.fs_group,
                # Else the kubelet changes each file of a large volume at each start.
                fs_group_change_policy="OnRootMismatch" if own.fs_group else None,
                seccomp_profile=k8s.V1SeccompProfile(type="RuntimeDefault"),
            ),
            init_containers=[escape(each) for each in (*_plugin(site), _sidecar(gm, site))],
            containers=[escape(_engine(gm, site))],
            volumes=made,
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
        resources=resources.engine_resources(gm),
        startup_probe=probes.engine_startup(gm, site),
        liveness_probe=probes.engine_liveness(site),
        lifecycle=lifecycle(),
        termination_message_policy="FallbackToLogsOnError",  # its last words are in the pod's status
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
        resources=resources.sidecar_resources(gm),
        startup_probe=probes.sidecar_startup(site),
        readiness_probe=probes.sidecar_readiness(site),
        lifecycle=lifecycle(),
        termination_message_policy="FallbackToLogsOnError",
        security_context=_locked_down(),
        volume_mounts=volumes.sidecar_mounts(gm, site),
    )


def _plugin(site: Site) -> list[k8s.V1Container]:
    if not site.plugin_dir:
        return []
    container = k8s.V1Container(
        name=names.PLUGIN_CONTAINER,
        image=site.plugin_image,
        image_pull_policy=site.plugin_pull_policy or None,
        # Runs again when the node rebuilds the pod's sandbox, over what the first run left.
        command=["cp", "-r", f"{PLUGIN_SOURCE}/.", site.plugin_dir],
        resources=resources.plugin_resources(),
        termination_message_policy="FallbackToLogsOnError",
        security_context=_locked_down(),
        volume_mounts=volumes.plugin_mounts(site),
    )
    return [container]


def _locked_down() -> k8s.V1SecurityContext:
    """Return what Kubernetes' restricted Pod Security standard asks for, and a read-only root."""
    return k8s.V1SecurityContext(
        allow_privilege_escalation=False,
        capabilities=k8s.V1Capabilities(drop=["ALL"]),
        read_only_root_filesystem=True,
    )
