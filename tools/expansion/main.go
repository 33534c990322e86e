// Program expansion tells what the kubelet makes of containers: of each in standard input's array, its
// environment and its words, as the kubelet's own function expands them.
package main

import (
	"encoding/json"
	"log"
	"os"

	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

type variable struct{ Name, Value string }

type container struct {
	Env           []variable
	Command, Args []string
}

type started struct {
	Env   map[string]string `json:"env"`
	Words []string          `json:"words"`
}

func main() {
	var containers []container
	if err := json.NewDecoder(os.Stdin).Decode(&containers); err != nil {
		log.Fatal(err)
	}
	answers := []started{}
	for _, one := range containers {
		env := map[string]string{}
		lookup := expansion.MappingFuncFor(env)
		for _, each := range one.Env { // in order, as in kubelet_pods.go: each sees the earlier ones
			env[each.Name] = expansion.Expand(each.Value, lookup)
		}
		words := []string{}
		for _, word := range append(one.Command, one.Args...) {
			words = append(words, expansion.Expand(word, lookup))
		}
		answers = append(answers, started{env, words})
	}
	if err := json.NewEncoder(os.Stdout).Encode(answers); err != nil {
		log.Fatal(err)
	}
}
