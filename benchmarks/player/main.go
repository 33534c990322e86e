// Plays, for `make bench-operator`, what a cluster without nodes lacks: the Deployment
// controller, the kubelet and the pods' sidecars. It also makes and changes the GuidedModels and says when
// they are Ready. Orders come in as lines of JSON, reports go out as such.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	nameLabel     = "guidedmodel.io/name"
	revisionLabel = "guidedmodel.io/revision"
)

// An order: create that many models, or change some for a while at a rate.
type order struct {
	Do      string  `json:"do"`
	Count   int     `json:"count"`
	Rate    float64 `json:"rate"`
	Seconds float64 `json:"seconds"`
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "the administrator's")
	namespace := flag.String("namespace", "", "where the models are")
	model := flag.String("model", "", "file with the model to make")
	page := flag.String("page", "", "file with what every sidecar says")
	workers := flag.Int("workers", 16, "objects that are worked on at once")
	flag.Parse()
	if err := run(*kubeconfig, *namespace, *model, *page, *workers); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(kubeconfig, namespace, model, page string, workers int) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = -1, -1
	said, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	made, err := os.ReadFile(model)
	if err != nil {
		return err
	}
	dynamicClient, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx := context.Background()
	users := newUsers(dynamicClient, namespace, made)
	cluster := newCluster(client, namespace, newSidecars(said), users.acted)
	if err := cluster.start(ctx, workers); err != nil {
		return err
	}
	if err := users.watch(ctx); err != nil {
		return err
	}
	report("started", map[string]any{})
	return obey(ctx, users)
}

// Obey ends when the orders do.
func obey(ctx context.Context, users *users) error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var order order
		if err := json.Unmarshal(lines.Bytes(), &order); err != nil {
			return err
		}
		var err error
		switch order.Do {
		case "create":
			err = users.create(ctx, order.Count)
		case "change":
			err = users.change(ctx, order.Rate, time.Duration(order.Seconds*float64(time.Second)))
		default:
			err = fmt.Errorf("unknown order %q", order.Do)
		}
		if err != nil {
			return err
		}
	}
	return lines.Err()
}

var out sync.Mutex

// Report writes one line; `at` is in seconds since 1970.
func report(event string, fields map[string]any) {
	fields["event"], fields["at"] = event, float64(time.Now().UnixMicro())/1e6
	line, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	out.Lock()
	defer out.Unlock()
	fmt.Println(string(line))
}
