// Command registry is a container registry without TLS or users, for the test node and for what pushes to it.
//
// It takes PORT, FOLDER and DESCRIPTOR: it serves on 127.0.0.1:PORT of the network namespace that it runs in, and on
// a listening socket that it inherits, which may be of another one. Images lie in FOLDER.
package main

import (
	"log"
	"net"
	"net/http"
	"os"
	"strconv"

	"github.com/google/go-containerregistry/pkg/registry"
)

func main() {
	descriptor, err := strconv.ParseUint(os.Args[3], 10, 32)
	if err != nil {
		log.Fatal(err)
	}
	inherited, err := net.FileListener(os.NewFile(uintptr(descriptor), "inherited"))
	if err != nil {
		log.Fatal(err)
	}
	here, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	images := registry.New(registry.WithBlobHandler(registry.NewDiskBlobHandler(os.Args[2])))
	go func() { log.Fatal(http.Serve(inherited, images)) }()
	log.Fatal(http.Serve(here, images))
}
