// Serves custom resources with the code of Kubernetes' API server, and nothing else of it: no core types, no users.
//
//	server ETCD PORT DIRECTORY
//
// ETCD is the address of an etcd. DIRECTORY gets the certificate of the server, which listens on this port of loopback.
package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/apiextensions-apiserver/pkg/cmd/server"
	"k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// The server resolves the services of webhooks by a client of the core types. No definition here has a webhook, so the
// client needs an address and no server.
const kubeconfig = `{"apiVersion": "v1", "kind": "Config", "current-context": "nowhere",
"clusters": [{"name": "nowhere", "cluster": {"server": "http://127.0.0.1:1"}}],
"contexts": [{"name": "nowhere", "context": {"cluster": "nowhere", "user": ""}}]}`

func run(etcd, port, directory string) error {
	o := options.NewCustomResourceDefinitionsServerOptions(os.Stdout, os.Stderr)
	number, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	o.RecommendedOptions.Etcd.StorageConfig.Transport.ServerList = []string{etcd}
	o.RecommendedOptions.SecureServing.BindAddress = net.IPv4(127, 0, 0, 1)
	o.RecommendedOptions.SecureServing.BindPort = number
	o.RecommendedOptions.SecureServing.ServerCert.CertDirectory = directory
	o.RecommendedOptions.Authentication = nil
	o.RecommendedOptions.Authorization = nil
	o.RecommendedOptions.Admission = nil
	o.RecommendedOptions.Features.EnablePriorityAndFairness = false
	path := filepath.Join(directory, "kubeconfig")
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		return err
	}
	o.RecommendedOptions.CoreAPI.CoreAPIKubeconfigPath = path
	if err := o.ServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	if err := o.Complete(); err != nil {
		return err
	}
	if err := o.Validate(); err != nil {
		return err
	}
	return server.Run(genericapiserver.SetupSignalContext(), o)
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: server ETCD PORT DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "server:", err)
		os.Exit(1)
	}
}
