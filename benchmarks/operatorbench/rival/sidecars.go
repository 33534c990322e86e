package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	readyPeriod    = 180 * time.Second
	startingPeriod = 15 * time.Second
	pageTimeout    = 2 * time.Second
)

// A page is what a pod's sidecar says.
type page struct {
	Ready          bool              `json:"ready"`
	Reason         string            `json:"reason"`
	Versions       map[string]string `json:"versions"`
	Patches        []Patch           `json:"patches"`
	Ranks          []RankState       `json:"ranks"`
	GrammarWorkers Workers           `json:"grammarWorkers"`
}

type reading struct {
	page    *page
	version string
	due     time.Time
}

// Sidecars remembers each pod's page and reads it again when the pod changed, and now and then.
type sidecars struct {
	client   *http.Client
	lock     sync.Mutex
	readings map[types.UID]reading
}

func newSidecars() *sidecars {
	return &sidecars{client: &http.Client{Timeout: pageTimeout}, readings: map[types.UID]reading{}}
}

// Read returns the page, nil if there is none, and when it should be read again.
func (s *sidecars) read(ctx context.Context, pod *corev1.Pod) (*page, time.Time) {
	s.lock.Lock()
	last, known := s.readings[pod.UID]
	s.lock.Unlock()
	if known && last.version == pod.ResourceVersion && time.Now().Before(last.due) {
		return last.page, last.due
	}
	found, err := s.fetch(ctx, pod.Status.PodIP)
	period := startingPeriod
	if err == nil && found.Ready && isReady(pod) {
		period = readyPeriod
	}
	due := time.Now().Add(period)
	s.lock.Lock()
	s.readings[pod.UID] = reading{found, pod.ResourceVersion, due}
	s.lock.Unlock()
	return found, due
}

func (s *sidecars) fetch(ctx context.Context, address string) (*page, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+":8002/status", nil)
	if err != nil {
		return nil, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the sidecar answered %d", response.StatusCode)
	}
	found := &page{}
	return found, json.NewDecoder(http.MaxBytesReader(nil, response.Body, 256<<10)).Decode(found)
}

func isReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
