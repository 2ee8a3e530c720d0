package certificate

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Keeper keeps a Secret, the webhook configurations and what is served in agreement. Several replicas may do so at once: each
// serves what the Secret holds, and whoever comes first renews it.
type Keeper struct {
	Client        client.Client    // should have no cache: these few objects are read once a minute
	Secret        client.ObjectKey // that exists, and may be empty
	Configuration string           // name of the mutating and of the validating configuration
	Names         []string         // of the server, at least one
	Lifetime      time.Duration    // of a serving certificate
	Log           *slog.Logger

	served atomic.Pointer[tls.Certificate]
	last   Store // that was read or made; only Look uses it
}

// ErrNone is the answer while there is no certificate to serve yet.
var ErrNone = errors.New("no certificate yet: is the Secret of the webhook there, and may the controller change it?")

// Certificate is what to serve now. It has the form that tls.Config.GetCertificate wants.
func (k *Keeper) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c := k.served.Load()
	if c == nil {
		return nil, ErrNone
	}
	return c, nil
}

// Ready says whether there is a certificate to serve; ErrNone else.
func (k *Keeper) Ready() error {
	_, err := k.Certificate(nil)
	return err
}

// Run looks again and again until the context ends. What goes wrong is logged, and tried again soon.
func (k *Keeper) Run(ctx context.Context) error {
	const soon = 2 * time.Second
	for {
		wait := Period(k.Lifetime)
		if err := k.Look(ctx, time.Now()); err != nil && ctx.Err() == nil {
			k.Log.Warn("webhook certificate: trying again", "error", err)
			wait = min(wait, soon)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// Look renews what is due at a time, serves what is in the Secret, and makes the configurations trust it. Configurations are read
// before the Secret and changed only if nobody else has since, so that a slow replica cannot take back what another wrote.
func (k *Keeper) Look(ctx context.Context, now time.Time) error {
	configurations, err := k.read(ctx)
	if err != nil {
		return err
	}
	var secret corev1.Secret
	if err := k.Client.Get(ctx, k.Secret, &secret); err != nil {
		return fmt.Errorf("get Secret %s: %w", k.Secret, err)
	}
	store := StoreOf(secret.Data)
	if len(store.Authorities) == 0 { // new, or somebody emptied it while the API server trusts what was in it
		store = k.last
	}
	next, _, err := Renew(store, trusted(configurations), k.Names, now, k.Lifetime)
	if err != nil {
		return err
	}
	if !equal(StoreOf(secret.Data), next) {
		secret.Data = next.Data()
		if err := k.Client.Update(ctx, &secret); err != nil {
			return fmt.Errorf("update Secret %s: %w", k.Secret, err)
		}
		k.Log.Info("webhook certificate: renewed", "secret", k.Secret.String())
	}
	pair, err := tls.X509KeyPair(next.Serving, next.ServingKey)
	if err != nil {
		return fmt.Errorf("read the certificate in Secret %s: %w", k.Secret, err)
	}
	k.last = next
	k.served.Store(&pair)
	for _, c := range configurations {
		if err := k.trust(ctx, c, next.Authorities); err != nil {
			return err
		}
	}
	return nil
}

func equal(a, b Store) bool {
	return bytes.Equal(a.Authorities, b.Authorities) && bytes.Equal(a.AuthorityKey, b.AuthorityKey) &&
		bytes.Equal(a.Serving, b.Serving) && bytes.Equal(a.ServingKey, b.ServingKey)
}

// configuration is a webhook configuration, and where its entries keep what they trust.
type configuration struct {
	object  client.Object
	bundles []*[]byte
}

// read gets the webhook configurations.
func (k *Keeper) read(ctx context.Context) ([]configuration, error) {
	var m admissionregistrationv1.MutatingWebhookConfiguration
	var v admissionregistrationv1.ValidatingWebhookConfiguration
	list := []configuration{{object: &m}, {object: &v}}
	for _, c := range list {
		if err := k.Client.Get(ctx, client.ObjectKey{Name: k.Configuration}, c.object); err != nil {
			return nil, fmt.Errorf("get %T %s: %w", c.object, k.Configuration, err)
		}
	}
	for i := range m.Webhooks {
		list[0].bundles = append(list[0].bundles, &m.Webhooks[i].ClientConfig.CABundle)
	}
	for i := range v.Webhooks {
		list[1].bundles = append(list[1].bundles, &v.Webhooks[i].ClientConfig.CABundle)
	}
	return list, nil
}

// trusted are the authorities that every entry trusts.
func trusted(list []configuration) []byte {
	var common []byte
	first := true
	for _, c := range list {
		for _, b := range c.bundles {
			if first {
				common, first = *b, false
				continue
			}
			var both []byte
			for _, authority := range read(common) {
				if contains(*b, authority) {
					both = append(both, write(authority)...)
				}
			}
			common = both
		}
	}
	return common
}

// trust makes all entries of a configuration trust authorities.
func (k *Keeper) trust(ctx context.Context, c configuration, authorities []byte) error {
	before, ok := c.object.DeepCopyObject().(client.Object)
	if !ok {
		return fmt.Errorf("%T cannot be copied", c.object)
	}
	changed := false
	for _, b := range c.bundles {
		if !bytes.Equal(*b, authorities) {
			*b, changed = authorities, true
		}
	}
	if !changed {
		return nil
	}
	patch := client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})
	if err := k.Client.Patch(ctx, c.object, patch); err != nil {
		return fmt.Errorf("patch %T %s: %w", c.object, k.Configuration, err)
	}
	return nil
}
