package main

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var groupVersion = schema.GroupVersion{Group: "guidedmodel.io", Version: "v1alpha1"}

// GuidedModel is what of the resource this controller reads, and the status that it writes.
type GuidedModel struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              Spec   `json:"spec"`
	Status            Status `json:"status,omitempty"`
}

// Spec holds the fields that the benchmark's models set.
type Spec struct {
	Replicas int32  `json:"replicas"`
	Model    Source `json:"model"`
	Engine   Engine `json:"engine"`
}

// Source says where the model comes from.
type Source struct {
	URI string `json:"uri"`
}

// Engine says what runs it.
type Engine struct {
	Image  string `json:"image"`
	Device string `json:"device,omitempty"`
}

// Status has every field that the operator's own has for such a model.
type Status struct {
	ObservedGeneration int64              `json:"observedGeneration"`
	Replicas           int32              `json:"replicas"`
	ReadyReplicas      int32              `json:"readyReplicas"`
	UpdatedReplicas    int32              `json:"updatedReplicas"`
	Selector           string             `json:"selector"`
	URL                string             `json:"url"`
	Revision           string             `json:"revision"`
	Conditions         []metav1.Condition `json:"conditions"`
	Resolved           Resolved           `json:"resolved"`
	Patches            []Patch            `json:"patches"`
	Pods               []PodState         `json:"pods"`
}

// Resolved is what the pods really run.
type Resolved struct {
	Image            string            `json:"image"`
	VLLMVersion      string            `json:"vllmVersion"`
	GrammarLibraries map[string]string `json:"grammarLibraries"`
	PluginVersion    string            `json:"pluginVersion"`
	ModelRunner      string            `json:"modelRunner"`
}

// Patch is one change that the plugin made to vLLM.
type Patch struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Reason string `json:"reason"`
}

// PodState is one pod, as its sidecar tells.
type PodState struct {
	Name           string      `json:"name"`
	Ready          bool        `json:"ready"`
	Reason         string      `json:"reason"`
	Ranks          []RankState `json:"ranks"`
	GrammarWorkers Workers     `json:"grammarWorkers"`
}

// RankState is one rank of a pod.
type RankState struct {
	Rank    int32  `json:"rank"`
	State   string `json:"state"`
	Desyncs int32  `json:"desyncs"`
}

// Workers are the grammar workers of a pod.
type Workers struct {
	Ready    int32 `json:"ready"`
	Restarts int32 `json:"restarts"`
}

// GuidedModelList is a list of them.
type GuidedModelList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []GuidedModel `json:"items"`
}

// DeepCopy copies a model.
func (in *GuidedModel) DeepCopy() *GuidedModel {
	out := *in
	in.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status = in.Status.deepCopy()
	return &out
}

// DeepCopyObject copies a model.
func (in *GuidedModel) DeepCopyObject() runtime.Object { return in.DeepCopy() }

// DeepCopyObject copies a list.
func (in *GuidedModelList) DeepCopyObject() runtime.Object {
	out := *in
	in.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]GuidedModel, len(in.Items))
	for i := range in.Items {
		out.Items[i] = *in.Items[i].DeepCopy()
	}
	return &out
}

func (in Status) deepCopy() Status {
	in.Conditions = append([]metav1.Condition(nil), in.Conditions...)
	in.Patches = append([]Patch(nil), in.Patches...)
	pods := make([]PodState, len(in.Pods))
	for i, pod := range in.Pods {
		pod.Ranks = append([]RankState(nil), pod.Ranks...)
		pods[i] = pod
	}
	in.Pods = pods
	return in
}

func addToScheme(scheme *runtime.Scheme) {
	scheme.AddKnownTypes(groupVersion, &GuidedModel{}, &GuidedModelList{})
	metav1.AddToGroupVersion(scheme, groupVersion)
}
