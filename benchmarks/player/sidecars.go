package main

import (
	"fmt"
	"net"
	"net/http"
	"sync"
)

// Sidecars serve the same page, each at a loopback address of its own as pods have theirs.
type sidecars struct {
	page []byte
	lock sync.Mutex
	made int
	free []string
}

func newSidecars(page []byte) *sidecars { return &sidecars{page: page} }

// Take returns an address where a sidecar answers; given back, it goes on answering for its next pod.
func (s *sidecars) take() (string, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if last := len(s.free) - 1; last >= 0 {
		address := s.free[last]
		s.free = s.free[:last]
		return address, nil
	}
	address := fmt.Sprintf("127.88.%d.%d", s.made/250, s.made%250+1)
	s.made++
	listener, err := net.Listen("tcp", address+":8002")
	if err != nil {
		return "", err
	}
	serve := func(answer http.ResponseWriter, _ *http.Request) { _, _ = answer.Write(s.page) }
	go func() { _ = http.Serve(listener, http.HandlerFunc(serve)) }()
	return address, nil
}

func (s *sidecars) giveBack(address string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.free = append(s.free, address)
}
