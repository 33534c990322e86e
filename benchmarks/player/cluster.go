package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

const node = "played"

// A cluster plays Deployment controller and kubelet: a pod for each replica, of the current template,
// running at once and ready at its second look.
type cluster struct {
	client      kubernetes.Interface
	namespace   string
	sidecars    *sidecars
	acted       func(name string, replicas int32)
	deployments cache.Indexer
	pods        cache.Indexer
	queue       workqueue.TypedRateLimitingInterface[string]
}

func newCluster(client kubernetes.Interface, namespace string, sidecars *sidecars, acted func(string, int32)) *cluster {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](10*time.Millisecond, time.Second)
	return &cluster{
		client: client, namespace: namespace, sidecars: sidecars, acted: acted,
		queue: workqueue.NewTypedRateLimitingQueue[string](limiter),
	}
}

func (c *cluster) start(ctx context.Context, workers int) error {
	factory := informers.NewSharedInformerFactoryWithOptions(c.client, 0,
		informers.WithNamespace(c.namespace), informers.WithTransform(withoutManagedFields))
	deployments, pods := factory.Apps().V1().Deployments().Informer(), factory.Core().V1().Pods().Informer()
	byModel := func(item any) ([]string, error) { return []string{item.(*corev1.Pod).Labels[nameLabel]}, nil }
	if err := pods.AddIndexers(cache.Indexers{"model": byModel}); err != nil {
		return err
	}
	c.deployments, c.pods = deployments.GetIndexer(), pods.GetIndexer()
	ring := func(item any) {
		if gone, ok := item.(cache.DeletedFinalStateUnknown); ok {
			item = gone.Obj
		}
		switch item := item.(type) {
		case *appsv1.Deployment:
			c.acted(item.Name, *item.Spec.Replicas)
			c.queue.Add(item.Name)
		case *corev1.Pod:
			c.queue.Add(item.Labels[nameLabel])
		}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: ring, UpdateFunc: func(_, item any) { ring(item) }, DeleteFunc: ring}
	for _, informer := range []cache.SharedIndexInformer{deployments, pods} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for range workers {
		go c.work(ctx)
	}
	return nil
}

func withoutManagedFields(item any) (any, error) {
	if object, ok := item.(metav1.Object); ok {
		object.SetManagedFields(nil)
	}
	return item, nil
}

func (c *cluster) work(ctx context.Context) {
	for {
		name, _ := c.queue.Get()
		if err := c.play(ctx, name); err != nil {
			c.queue.AddRateLimited(name)
		} else {
			c.queue.Forget(name)
		}
		c.queue.Done(name)
	}
}

func (c *cluster) play(ctx context.Context, name string) error {
	item, exists, err := c.deployments.GetByKey(c.namespace + "/" + name)
	if err != nil || !exists {
		return err
	}
	deployment := item.(*appsv1.Deployment)
	found, err := c.pods.ByIndex("model", name)
	if err != nil {
		return err
	}
	there, ready := map[string]bool{}, int32(0)
	for _, item := range found {
		pod := item.(*corev1.Pod)
		if index(deployment, pod.Name) < 0 {
			if err := c.end(ctx, pod); err != nil {
				return err
			}
			continue
		}
		there[pod.Name] = true
		if isReady(pod) {
			ready++
			continue
		}
		if err := c.show(ctx, pod); err != nil {
			return err
		}
	}
	if err := c.tell(ctx, deployment, ready); err != nil {
		return err
	}
	for i := range *deployment.Spec.Replicas {
		if !there[podName(deployment, i)] {
			if err := c.make(ctx, deployment, i); err != nil {
				return err
			}
		}
	}
	return nil
}

func podName(deployment *appsv1.Deployment, i int32) string {
	return fmt.Sprintf("%s-%s-%d", deployment.Name, deployment.Spec.Template.Labels[revisionLabel], i)
}

// Index returns which of the Deployment's wanted pods this is, -1 if none.
func index(deployment *appsv1.Deployment, name string) int32 {
	for i := range *deployment.Spec.Replicas {
		if podName(deployment, i) == name {
			return i
		}
	}
	return -1
}

func (c *cluster) make(ctx context.Context, deployment *appsv1.Deployment, i int32) error {
	template := deployment.Spec.Template
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: podName(deployment, i), Labels: template.Labels, Annotations: template.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(deployment, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
		},
		Spec: template.Spec,
	}
	pod.Spec.NodeName = node
	_, err := c.client.CoreV1().Pods(c.namespace).Create(ctx, pod, metav1.CreateOptions{})
	if errors.IsAlreadyExists(err) {
		return nil // the watch is behind
	}
	return err
}

// Show takes a pod one step on: it runs, with its sidecar's address; then it is ready.
func (c *cluster) show(ctx context.Context, pod *corev1.Pod) error {
	status := corev1.PodStatus{Phase: corev1.PodRunning, PodIP: pod.Status.PodIP}
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
	if pod.Status.PodIP == "" {
		address, err := c.sidecars.take()
		if err != nil {
			return err
		}
		status.PodIP, ready.Status = address, corev1.ConditionFalse
	}
	status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	status.Conditions = []corev1.PodCondition{ready}
	_, err := c.client.CoreV1().Pods(c.namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, statusPatch(status), metav1.PatchOptions{}, "status")
	if errors.IsNotFound(err) {
		return nil
	}
	return err
}

func (c *cluster) end(ctx context.Context, pod *corev1.Pod) error {
	now := int64(0)
	options := metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	err := c.client.CoreV1().Pods(c.namespace).Delete(ctx, pod.Name, options)
	if err == nil && pod.Status.PodIP != "" {
		c.sidecars.giveBack(pod.Status.PodIP)
	}
	if errors.IsNotFound(err) || errors.IsConflict(err) {
		return nil
	}
	return err
}

// Tell writes the Deployment's status if it is not so already.
func (c *cluster) tell(ctx context.Context, deployment *appsv1.Deployment, ready int32) error {
	seen := deployment.Status
	replicas := *deployment.Spec.Replicas
	if seen.ObservedGeneration == deployment.Generation && seen.ReadyReplicas == ready && seen.Replicas == replicas {
		return nil
	}
	status := appsv1.DeploymentStatus{
		ObservedGeneration: deployment.Generation, Replicas: replicas, UpdatedReplicas: replicas,
		ReadyReplicas: ready, AvailableReplicas: ready, UnavailableReplicas: replicas - ready,
	}
	_, err := c.client.AppsV1().Deployments(c.namespace).Patch(ctx, deployment.Name, types.StrategicMergePatchType, statusPatch(status), metav1.PatchOptions{}, "status")
	if errors.IsNotFound(err) {
		return nil
	}
	return err
}

func statusPatch(status any) []byte {
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		panic(err)
	}
	return patch
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
