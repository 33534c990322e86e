// Command pause is the sandbox of each pod on the test node: it holds the namespaces and reaps what is left to it.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	events := make(chan os.Signal, 16)
	signal.Notify(events, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for event := range events {
		if event != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}
