package main

import (
	"context"
	"fmt"
	"sort"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	fieldOwner = client.FieldOwner("rival")
	podIndex   = "model"
)

type reconciler struct {
	client.Client
	blueprint *blueprint
	sidecars  *sidecars
}

func (r *reconciler) setUp(manager ctrl.Manager, workers int) error {
	byModel := func(object client.Object) []string { return []string{object.GetLabels()[nameLabel]} }
	if err := manager.GetFieldIndexer().IndexField(context.Background(), &corev1.Pod{}, podIndex, byModel); err != nil {
		return err
	}
	ring := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, pod client.Object) []reconcile.Request {
		name := types.NamespacedName{Namespace: pod.GetNamespace(), Name: pod.GetLabels()[nameLabel]}
		return []reconcile.Request{{NamespacedName: name}}
	})
	builder := ctrl.NewControllerManagedBy(manager).For(&GuidedModel{}).Watches(&corev1.Pod{}, ring)
	for _, kind := range distinct(r.blueprint.children) {
		builder = builder.Owns(kind)
	}
	return builder.WithOptions(controller.Options{MaxConcurrentReconciles: workers}).Complete(r)
}

// Reconcile makes the children and the status of one model as they should be.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	model := &GuidedModel{}
	if err := r.Get(ctx, request.NamespacedName, model); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if model.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	var deployment *appsv1.Deployment
	for _, want := range r.blueprint.of(model) {
		live, err := r.settle(ctx, model, want)
		if err != nil {
			return ctrl.Result{}, err
		}
		if found, ok := live.(*appsv1.Deployment); ok {
			deployment = found
		}
	}
	pods := &corev1.PodList{}
	if err := r.List(ctx, pods, client.InNamespace(model.Namespace), client.MatchingFields{podIndex: model.Name}); err != nil {
		return ctrl.Result{}, err
	}
	sort.Slice(pods.Items, func(i, j int) bool { return pods.Items[i].Name < pods.Items[j].Name })
	pages, again := r.pages(ctx, pods.Items)
	made := makeStatus(model, deployment, pods.Items, pages, r.blueprint.revision)
	if !equality.Semantic.DeepEqual(model.Status, made) {
		before := model.DeepCopy()
		model.Status = made
		if err := r.Status().Patch(ctx, model, client.MergeFrom(before), fieldOwner); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// Settle makes one child as wanted and returns it.
func (r *reconciler) settle(ctx context.Context, model *GuidedModel, want client.Object) (client.Object, error) {
	if err := controllerutil.SetControllerReference(model, want, r.Scheme()); err != nil {
		return nil, err
	}
	live := emptyLike(want)
	err := r.Get(ctx, client.ObjectKeyFromObject(want), live)
	switch {
	case errors.IsNotFound(err):
		return want, r.Create(ctx, want, fieldOwner)
	case err != nil:
		return nil, err
	case !metav1.IsControlledBy(live, model):
		return nil, fmt.Errorf("%T %s does not belong to the model", want, want.GetName())
	case isSame(want, live):
		return live, nil
	}
	// The deprecated form takes typed objects; it is the same request.
	return want, r.Patch(ctx, want, client.Apply, fieldOwner, client.ForceOwnership) //nolint:staticcheck
}

// Pages returns what the running pods' sidecars say by the pod's name, and when to look again.
func (r *reconciler) pages(ctx context.Context, pods []corev1.Pod) (map[string]*page, time.Duration) {
	found, soonest := map[string]*page{}, 10*time.Minute
	for i := range pods {
		pod := &pods[i]
		if pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning || pod.Status.PodIP == "" {
			continue
		}
		said, due := r.sidecars.read(ctx, pod)
		if said != nil {
			found[pod.Name] = said
		}
		soonest = min(soonest, time.Until(due))
	}
	return found, max(soonest, time.Second)
}
