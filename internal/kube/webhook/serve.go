package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Serve answers on a listener with the certificate that is current at each connection, until the context ends; then it finishes
// the answers that it began, in at most five seconds.
func Serve(ctx context.Context, ln net.Listener, h http.Handler, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) error {
	const (
		patience = 10 * time.Second // the API server waits no longer, see timeoutSeconds in the chart
		farewell = 5 * time.Second
		idle     = 2 * time.Minute
	)
	s := &http.Server{
		Handler: h, ReadTimeout: patience, WriteTimeout: patience, IdleTimeout: idle,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate},
	}
	done := make(chan error, 1)
	go func() { done <- s.ServeTLS(ln, "", "") }()
	select {
	case err := <-done:
		return fmt.Errorf("serve the webhook: %w", err)
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if err := s.Shutdown(ending); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stop the webhook: %w", err)
	}
	return nil
}
