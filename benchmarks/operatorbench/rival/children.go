package main

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What the operator's own builders rendered for a model of this name and namespace.
const (
	placeholder          = "placeholder-"
	placeholderName      = "placeholder-model"
	placeholderNamespace = "placeholder-namespace"
	revisionLabel        = "guidedmodel.io/revision"
	nameLabel            = "guidedmodel.io/name"
)

// A blueprint holds typed children of one model; those of another are copies with its name in them.
type blueprint struct {
	children []client.Object
	revision string
}

func readBlueprint(path string) (*blueprint, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var items []json.RawMessage
	if err := json.Unmarshal(text, &items); err != nil {
		return nil, err
	}
	decoder := clientgoscheme.Codecs.UniversalDeserializer()
	made := &blueprint{}
	for _, item := range items {
		object, _, err := decoder.Decode(item, nil, nil)
		if err != nil {
			return nil, err
		}
		child := object.(client.Object)
		child.SetOwnerReferences(nil)
		if deployment, ok := child.(*appsv1.Deployment); ok {
			made.revision = deployment.Spec.Template.Labels[revisionLabel]
			writeOut(&deployment.Spec.Template.Spec)
		}
		made.children = append(made.children, child)
	}
	return made, nil
}

// WriteOut writes out the default of a number, which else would count as different from the server's for ever.
func writeOut(spec *corev1.PodSpec) {
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for _, container := range containers {
			for _, probe := range []*corev1.Probe{container.StartupProbe, container.ReadinessProbe, container.LivenessProbe} {
				if probe != nil && probe.SuccessThreshold == 0 {
					probe.SuccessThreshold = 1
				}
			}
		}
	}
}

// Of returns the children that a model should have.
func (b *blueprint) of(model *GuidedModel) []client.Object {
	names := strings.NewReplacer(placeholderName, model.Name, placeholderNamespace, model.Namespace)
	made := make([]client.Object, 0, len(b.children))
	for _, each := range b.children {
		child := each.DeepCopyObject().(client.Object)
		rename(reflect.ValueOf(child).Elem(), names)
		if deployment, ok := child.(*appsv1.Deployment); ok {
			replicas := model.Spec.Replicas
			deployment.Spec.Replicas = &replicas
		}
		made = append(made, child)
	}
	return made
}

var quantity = reflect.TypeOf(resource.Quantity{})

// Rename puts the names into every string below a value.
func rename(value reflect.Value, names *strings.Replacer) {
	switch value.Kind() {
	case reflect.String:
		if strings.Contains(value.String(), placeholder) {
			value.SetString(names.Replace(value.String()))
		}
	case reflect.Pointer:
		if !value.IsNil() {
			rename(value.Elem(), names)
		}
	case reflect.Struct:
		if value.Type() == quantity {
			return
		}
		for i := range value.NumField() {
			if field := value.Field(i); field.CanSet() {
				rename(field, names)
			}
		}
	case reflect.Slice:
		if value.Type().Elem().Kind() == reflect.Uint8 {
			if bytes.Contains(value.Bytes(), []byte(placeholder)) {
				value.SetBytes([]byte(names.Replace(string(value.Bytes()))))
			}
			return
		}
		for i := range value.Len() {
			rename(value.Index(i), names)
		}
	case reflect.Map:
		if value.Type().Elem().Kind() != reflect.String {
			return
		}
		for _, key := range value.MapKeys() {
			if text := value.MapIndex(key).String(); strings.Contains(text, placeholder) {
				value.SetMapIndex(key, reflect.ValueOf(names.Replace(text)).Convert(value.Type().Elem()))
			}
		}
	}
}

// What is compared of a child, whatever its kind. A ControllerRevision's data never change.
var compared = []string{"Spec", "Data", "AutomountServiceAccountToken", "Revision"}

// IsSame says whether a live child has all that is wanted; what the server or others added does not count.
func isSame(want, live client.Object) bool {
	if !equality.Semantic.DeepDerivative(want.GetLabels(), live.GetLabels()) {
		return false
	}
	_, isRevision := want.(*appsv1.ControllerRevision)
	a, b := reflect.ValueOf(want).Elem(), reflect.ValueOf(live).Elem()
	for _, name := range compared {
		field := a.FieldByName(name)
		if !field.IsValid() || (isRevision && name == "Data") {
			continue
		}
		if !equality.Semantic.DeepDerivative(field.Interface(), b.FieldByName(name).Interface()) {
			return false
		}
	}
	return true
}

func emptyLike(want client.Object) client.Object {
	return reflect.New(reflect.TypeOf(want).Elem()).Interface().(client.Object)
}

func scheme() *runtime.Scheme {
	made := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(made); err != nil {
		panic(err)
	}
	addToScheme(made)
	return made
}
