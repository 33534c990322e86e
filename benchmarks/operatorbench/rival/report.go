package main

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A finding is a condition's status, reason and message.
type finding struct {
	status  metav1.ConditionStatus
	reason  string
	message string
}

// MakeStatus says of a model what the operator says of it.
func makeStatus(model *GuidedModel, deployment *appsv1.Deployment, pods []corev1.Pod, pages map[string]*page, revision string) Status {
	made := Status{
		ObservedGeneration: model.Generation,
		Selector:           nameLabel + "=" + model.Name,
		URL:                fmt.Sprintf("http://%s.%s.svc:8000", model.Name, model.Namespace),
		Revision:           revision,
		Resolved:           Resolved{Image: model.Spec.Engine.Image},
		Patches:            []Patch{},
		Pods:               []PodState{},
	}
	spoken := 0
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp != nil {
			continue
		}
		ready := isReady(pod)
		made.Replicas++
		if ready {
			made.ReadyReplicas++
		}
		if pod.Labels[revisionLabel] == revision {
			made.UpdatedReplicas++
		}
		state := PodState{Name: pod.Name, Ready: ready, Ranks: []RankState{}}
		if found := pages[pod.Name]; found != nil {
			spoken++
			state.Reason, state.Ranks, state.GrammarWorkers = found.Reason, found.Ranks, found.GrammarWorkers
			made.Patches = found.Patches
			made.Resolved.VLLMVersion = found.Versions["vllm"]
			made.Resolved.GrammarLibraries = map[string]string{
				"xgrammar":   found.Versions["xgrammar"],
				"llguidance": found.Versions["llguidance"],
			}
			made.Resolved.PluginVersion = found.Versions["guidedmodel"]
			made.Resolved.ModelRunner = found.Versions["modelRunner"]
		}
		made.Pods = append(made.Pods, state)
	}
	made.Conditions = conditions(model, findings(model, deployment, &made, spoken))
	return made
}

func findings(model *GuidedModel, deployment *appsv1.Deployment, made *Status, spoken int) []named {
	progress := fmt.Sprintf("%d of %d pods are ready", made.ReadyReplicas, model.Spec.Replicas)
	complete := made.ReadyReplicas >= model.Spec.Replicas && made.Replicas == made.UpdatedReplicas
	ready, progressing := finding{"False", "PodsNotReady", progress}, finding{"True", "RollingOut", progress}
	switch {
	case deployment == nil:
		ready = finding{"False", "Creating", "the Deployment is being created"}
	case deployment.Status.ObservedGeneration < deployment.Generation:
		ready = finding{"False", "Progressing", "the Deployment's last change has not been acted upon yet"}
	case complete:
		ready, progressing = finding{"True", "PodsReady", progress}, finding{"False", "Complete", progress}
	}
	available := finding{"False", "NoReadyPods", progress}
	if made.ReadyReplicas > 0 {
		available = finding{"True", "SomePodsReady", "at least one pod answers requests"}
	}
	guided := finding{"Unknown", "Pending", "no pod of the current revision has said anything yet"}
	if spoken > 0 {
		guided = finding{"True", "Active", fmt.Sprintf("%d pods prove guided decoding", spoken)}
	}
	return []named{
		{"Ready", ready},
		{"Available", available},
		{"Progressing", progressing},
		{"Compatible", finding{"True", "Supported", ""}},
		{"GuidedDecoding", guided},
		{"Telemetry", finding{"False", "Disabled", "the spec names no collector"}},
	}
}

type named struct {
	name  string
	found finding
}

// Conditions keeps the time of transition where the status stayed.
func conditions(model *GuidedModel, found []named) []metav1.Condition {
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	made := make([]metav1.Condition, 0, len(found))
	for _, each := range found {
		since := now
		for _, old := range model.Status.Conditions {
			if old.Type == each.name && old.Status == each.found.status {
				since = old.LastTransitionTime
			}
		}
		made = append(made, metav1.Condition{
			Type:               each.name,
			Status:             each.found.status,
			Reason:             each.found.reason,
			Message:            each.found.message,
			LastTransitionTime: since,
			ObservedGeneration: model.Generation,
		})
	}
	return made
}
