package main

import (
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

const (
	creators      = 16 // users who create or change at once
	reportEvery   = 50 * time.Millisecond
	lastChangesIn = 30 * time.Second // what is not acted on by then counts as missed
)

// Users make models, change them, and wait for them.
type users struct {
	client   dynamic.ResourceInterface
	model    []byte
	informer cache.SharedIndexInformer

	lock    sync.Mutex
	ready   map[string]bool
	waiting map[string]change
	took    []float64
	sent    int // changes, ever: each asks for another number than the one before
}

// A change is a number of replicas asked for, and when.
type change struct {
	replicas int32
	asked    time.Time
}

func newUsers(client dynamic.Interface, namespace string, model []byte) *users {
	resource := schema.GroupVersionResource{Group: "guidedmodel.io", Version: "v1alpha1", Resource: "guidedmodels"}
	return &users{
		client: client.Resource(resource).Namespace(namespace), model: model,
		ready: map[string]bool{}, waiting: map[string]change{},
	}
}

func nameOf(i int) string { return fmt.Sprintf("model-%05d", i) }

// Watch counts the models that are Ready, and reports each time that the count has changed.
func (u *users) watch(ctx context.Context) error {
	lister := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options v1.ListOptions) (runtime.Object, error) {
			return u.client.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options v1.ListOptions) (watch.Interface, error) {
			return u.client.Watch(ctx, options)
		},
	}
	informer := cache.NewSharedIndexInformer(lister, &unstructured.Unstructured{}, 0, cache.Indexers{})
	u.informer = informer
	see := func(item any) { u.see(item.(*unstructured.Unstructured)) }
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, item any) { see(item) }})
	if err != nil {
		return err
	}
	go informer.RunWithContext(ctx)
	cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
	go u.count()
	return nil
}

func (u *users) see(model *unstructured.Unstructured) {
	ready := isModelReady(model)
	u.lock.Lock()
	defer u.lock.Unlock()
	if ready {
		u.ready[model.GetName()] = true
	} else {
		delete(u.ready, model.GetName())
	}
}

func isModelReady(model *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(model.Object, "status", "conditions")
	for _, item := range conditions {
		condition, _ := item.(map[string]any)
		if condition["type"] == "Ready" {
			return condition["status"] == "True" && condition["observedGeneration"] == model.GetGeneration()
		}
	}
	return false
}

func (u *users) count() {
	before := -1
	for range time.Tick(reportEvery) {
		u.lock.Lock()
		now := len(u.ready)
		u.lock.Unlock()
		if now != before {
			report("ready", map[string]any{"count": now})
		}
		before = now
	}
}

// Create makes models as fast as the API server takes them.
func (u *users) create(ctx context.Context, count int) error {
	report("creating", map[string]any{})
	err := together(count, func(i int) error {
		var body map[string]any
		if err := json.Unmarshal(u.model, &body); err != nil {
			return err
		}
		model := &unstructured.Unstructured{Object: body}
		model.SetName(nameOf(i))
		_, err := u.client.Create(ctx, model, v1.CreateOptions{})
		return err
	})
	report("created", map[string]any{"count": count})
	return err
}

// Change asks for another number of replicas of one model after the other, at an even pace, and reports how
// long it took from each request's sending until its Deployment was seen to have that number.
func (u *users) change(ctx context.Context, rate float64, duration time.Duration) error {
	u.lock.Lock()
	u.took = nil
	u.lock.Unlock()
	names, began := u.informer.GetStore().ListKeys(), time.Now()
	sort.Strings(names)
	faults := make(chan error, 1)
	sent := 0
	for ; time.Since(began) < duration; sent++ {
		turn := u.sent + sent
		time.Sleep(time.Until(began.Add(time.Duration(float64(sent) / rate * float64(time.Second)))))
		_, name, err := cache.SplitMetaNamespaceKey(names[turn%len(names)])
		if err != nil {
			return err
		}
		replicas := int32(2 - (turn/len(names))%2)
		u.await(name, replicas)
		go func() {
			if err := u.ask(ctx, name, replicas); err != nil {
				select {
				case faults <- err:
				default:
				}
			}
		}()
	}
	u.sent += sent
	for deadline := time.Now().Add(lastChangesIn); u.pending() > 0 && time.Now().Before(deadline); {
		time.Sleep(reportEvery)
	}
	select {
	case err := <-faults:
		return err
	default:
	}
	u.reportChanges(sent)
	return nil
}

// Await notes what is asked for from now on.
func (u *users) await(name string, replicas int32) {
	u.lock.Lock()
	defer u.lock.Unlock()
	u.waiting[name] = change{replicas, time.Now()}
}

func (u *users) ask(ctx context.Context, name string, replicas int32) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := u.client.Patch(ctx, name, types.MergePatchType, patch, v1.PatchOptions{})
	return err
}

// Acted is told each number of replicas that a Deployment is seen to have.
func (u *users) acted(name string, replicas int32) {
	u.lock.Lock()
	defer u.lock.Unlock()
	if asked, ok := u.waiting[name]; ok && asked.replicas == replicas {
		u.took = append(u.took, time.Since(asked.asked).Seconds())
		delete(u.waiting, name)
	}
}

func (u *users) pending() int {
	u.lock.Lock()
	defer u.lock.Unlock()
	return len(u.waiting)
}

func (u *users) reportChanges(sent int) {
	u.lock.Lock()
	defer u.lock.Unlock()
	sort.Float64s(u.took)
	quantile := func(q float64) any {
		if len(u.took) == 0 {
			return nil
		}
		return u.took[min(int(q*float64(len(u.took))), len(u.took)-1)]
	}
	report("changed", map[string]any{
		"sent": sent, "missed": sent - len(u.took), "p50": quantile(0.5), "p99": quantile(0.99), "max": quantile(1),
	})
}

// Together calls do(0) to do(count-1), some at once, and returns the first error.
func together(count int, do func(int) error) error {
	numbers, faults := make(chan int), make(chan error, creators)
	for range creators {
		go func() {
			var first error
			for i := range numbers {
				if err := do(i); err != nil && first == nil {
					first = err
				}
			}
			faults <- first
		}()
	}
	for i := range count {
		numbers <- i
	}
	close(numbers)
	var first error
	for range creators {
		if err := <-faults; err != nil && first == nil {
			first = err
		}
	}
	return first
}
