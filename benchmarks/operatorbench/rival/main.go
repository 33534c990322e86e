// A controller of GuidedModels on controller-runtime, as a rival of the operator in `make bench-operator`: it
// makes the same children and the same status. Not a product: it knows one spec, and no failures.
package main

import (
	"flag"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	children := flag.String("children", "", "file with the children of one model, as the operator renders them")
	health := flag.String("health", "127.0.0.1:0", "address of /readyz")
	workers := flag.Int("workers", 16, "models that are worked on at once")
	flag.Parse()
	ctrl.SetLogger(klog.Background())
	if err := run(*children, *health, *workers); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(children, health string, workers int) error {
	blueprint, err := readBlueprint(children)
	if err != nil {
		return err
	}
	config := ctrl.GetConfigOrDie()
	config.QPS, config.Burst = -1, -1 // the API server's own fairness limits us, and nothing else
	config.UserAgent = "rival"
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                 scheme(),
		HealthProbeBindAddress: health,
		Metrics:                server.Options{BindAddress: "0"},
		Cache:                  cacheOptions(blueprint),
	})
	if err != nil {
		return err
	}
	own := &reconciler{manager.GetClient(), blueprint, newSidecars()}
	if err := own.setUp(manager, workers); err != nil {
		return err
	}
	if err := manager.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	return manager.Start(ctrl.SetupSignalHandler())
}

// CacheOptions keeps what carries our label, and of that no record of who owns which field.
func cacheOptions(blueprint *blueprint) cache.Options {
	ours, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: nameLabel, Operator: metav1.LabelSelectorOpExists}},
	})
	if err != nil {
		panic(err)
	}
	byObject := map[client.Object]cache.ByObject{}
	for _, object := range append(distinct(blueprint.children), &corev1.Pod{}) {
		byObject[object] = cache.ByObject{Label: labels.Selector(ours)}
	}
	return cache.Options{ByObject: byObject, DefaultTransform: cache.TransformStripManagedFields()}
}

func distinct(children []client.Object) []client.Object {
	seen, kinds := map[string]bool{}, []client.Object{}
	for _, child := range children {
		kind := child.GetObjectKind().GroupVersionKind().String()
		if !seen[kind] {
			kinds = append(kinds, emptyLike(child))
		}
		seen[kind] = true
	}
	return kinds
}
