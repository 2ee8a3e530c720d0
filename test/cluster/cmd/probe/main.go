// Command probe shows what a container is given: its arguments, environment, devices and mounts, one on each line. Then it
// waits for SIGTERM, or with the argument "once" ends at once. With "get PATH" it says what the API server answers to its
// ServiceAccount. With "webhook NAME" it is an admission webhook of that name which refuses everything.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// account is where the kubelet mounts the ServiceAccount.
const account = "/var/run/secrets/kubernetes.io/serviceaccount"

func main() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	show()
	if err := do(os.Args[1:]); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	if len(os.Args) > 1 && os.Args[1] != "webhook" {
		return
	}
	fmt.Println("waiting")
	fmt.Println("signal", <-signals)
}

func do(arguments []string) error {
	switch {
	case len(arguments) == 0, len(arguments) == 1 && arguments[0] == "once":
		return nil
	case len(arguments) == 2 && arguments[0] == "get":
		return get(arguments[1])
	case len(arguments) == 2 && arguments[0] == "webhook":
		return webhook(arguments[1])
	}
	return fmt.Errorf("there is no %q", arguments)
}

func show() {
	fmt.Printf("arguments %q\n", os.Args[1:])
	variables := os.Environ()
	slices.Sort(variables)
	for _, v := range variables {
		fmt.Println("env", v)
	}
	if devices, err := os.ReadDir("/dev"); err == nil {
		for _, d := range devices {
			fmt.Println("device", d.Name())
		}
	}
	if text, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); len(fields) > 4 {
				fmt.Println("mount", fields[4])
			}
		}
	}
}

// get asks the API server where the environment says it is, as every in-cluster client does.
func get(path string) error {
	ca, err := os.ReadFile(account + "/ca.crt")
	if err != nil {
		return err
	}
	token, err := os.ReadFile(account + "/token")
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	server := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	request, err := http.NewRequest(http.MethodGet, "https://"+server+path, http.NoBody)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+string(token))
	answer, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // only read
	text, err := io.ReadAll(answer.Body)
	fmt.Println("answer", answer.StatusCode, len(text), "bytes")
	return err
}
