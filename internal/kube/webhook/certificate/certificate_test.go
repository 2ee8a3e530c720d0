package certificate

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

var (
	epoch = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	names = []string{"weft-webhook.weft-system.svc", "weft-webhook.weft-system.svc.cluster.local"}
)

// accepts says whether somebody who trusts authorities would talk to who serves a store.
func accepts(authorities []byte, s Store, now time.Time) error {
	if _, err := tls.X509KeyPair(s.Serving, s.ServingKey); err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authorities) {
		return fmt.Errorf("trusts nobody")
	}
	for _, name := range names {
		if _, err := read(s.Serving)[0].Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: now}); err != nil {
			return err
		}
	}
	return nil
}

func TestFirst(t *testing.T) {
	s, changed, err := Renew(Store{}, nil, names, epoch, time.Hour)
	if err != nil || !changed {
		t.Fatal(changed, err)
	}
	if err := accepts(s.Authorities, s, epoch); err != nil {
		t.Error(err)
	}
	if back := StoreOf(s.Data()); !equal(back, s) {
		t.Error("not read back as written")
	}
	again, changed, err := Renew(s, s.Authorities, names, epoch.Add(time.Minute), time.Hour)
	if err != nil || changed || !equal(again, s) {
		t.Error("renewed at once", changed, err)
	}
}

// TestNoGap lets two replicas renew and serve for several lifetimes, each looking now and then, while the API server learns late
// what to trust: at no moment may it refuse what either serves.
func TestNoGap(t *testing.T) {
	for seed, lifetime := range []time.Duration{10 * time.Second, 5 * time.Minute, time.Hour, 90 * 24 * time.Hour} {
		t.Run(lifetime.String(), func(t *testing.T) { checkNoGap(t, lifetime, rand.New(rand.NewPCG(uint64(seed), 1))) })
	}
}

func checkNoGap(t *testing.T, lifetime time.Duration, r *rand.Rand) {
	t.Helper()
	const lifetimes = 6
	store, _, err := Renew(Store{}, nil, names, epoch, lifetime)
	if err != nil {
		t.Fatal(err)
	}
	served := [2]Store{store, store}
	trusted := store.Authorities // in the configuration
	serials, authorities := map[string]bool{}, map[string]bool{}
	step := max(Period(lifetime), lifetime/40)
	for now := epoch; now.Before(epoch.Add(lifetimes * lifetime)); {
		now = now.Add(step/2 + time.Duration(r.Int64N(int64(step/2))))
		heard := trusted // by the API server: within one step
		who := r.IntN(len(served))
		next, _, err := Renew(store, trusted, names, now, lifetime)
		if err != nil {
			t.Fatal(err)
		}
		store, served[who] = next, next
		if r.IntN(4) > 0 { // or the API server does not answer just now
			trusted = next.Authorities
		}
		for i, s := range served { // the other one serves what it read before
			if err := accepts(heard, s, now); err != nil {
				t.Fatalf("after %v replica %d is refused: %v", now.Sub(epoch), i, err)
			}
		}
		served[1-who] = store
		serials[read(next.Serving)[0].SerialNumber.String()] = true
		authorities[read(next.Authorities)[0].SerialNumber.String()] = true
		if n := len(read(next.Authorities)); n > 4 {
			t.Fatalf("%d authorities", n)
		}
	}
	if len(serials) < lifetimes || len(authorities) < lifetimes/2 {
		t.Fatalf("%d certificates of %d authorities in %d lifetimes", len(serials), len(authorities), lifetimes)
	}
}

// TestShorterLifetime is about an administrator who shortens it: what there is does not serve for its old time.
func TestShorterLifetime(t *testing.T) {
	s, _, err := Renew(Store{}, nil, names, epoch, 1000*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	now := epoch
	for range 60 {
		now = now.Add(time.Minute)
		if s, _, err = Renew(s, s.Authorities, names, now, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if end := read(s.Serving)[0].NotAfter; end.After(now.Add(time.Hour)) {
		t.Errorf("it serves until %v", end)
	}
}

// TestUntrustedIsNotServed is about an API server that never hears of the new authority.
func TestUntrustedIsNotServed(t *testing.T) {
	s, _, err := Renew(Store{}, nil, names, epoch, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	old := s.Authorities
	for now := epoch; now.Before(epoch.Add(3 * time.Hour)); now = now.Add(time.Minute) {
		if s, _, err = Renew(s, old, names, now, time.Hour); err != nil {
			t.Fatal(err)
		}
		if accepts(old, s, now) != nil && now.Before(read(old)[0].NotAfter.Add(-2*time.Hour)) {
			t.Fatalf("after %v", now.Sub(epoch))
		}
	}
}

func TestMadeAnew(t *testing.T) {
	good, _, err := Renew(Store{}, nil, names, epoch, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := Renew(Store{}, nil, names, epoch, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		s    Store
		at   time.Time
		kept bool // the old authority is still trusted
	}{
		{"the authority's key is lost", Store{Authorities: good.Authorities, Serving: good.Serving, ServingKey: good.ServingKey}, epoch, true},
		{"keys that do not belong to each other", Store{Authorities: good.Authorities, AuthorityKey: other.AuthorityKey, Serving: good.Serving, ServingKey: other.ServingKey}, epoch, true},
		{"nonsense", Store{Authorities: []byte("x"), AuthorityKey: []byte("-----BEGIN"), Serving: []byte("y"), ServingKey: []byte("z")}, epoch, false},
		{"all of it ended long ago", good, epoch.Add(24 * 365 * time.Hour), false},
		{"the serving certificate ended", good, epoch.Add(2 * time.Hour), true},
		{"of another name", good, epoch, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := names
			if c.name == "of another name" {
				want = append([]string{"weft-webhook.other.svc"}, names...)
			}
			s, changed, err := Renew(c.s, good.Authorities, want, c.at, time.Hour)
			if err != nil || !changed {
				t.Fatal(changed, err)
			}
			if err := accepts(s.Authorities, s, c.at); err != nil {
				t.Error(err)
			}
			if kept := bytes.Contains(s.Authorities, good.Authorities); kept != c.kept {
				t.Errorf("old authority kept: %v", kept)
			}
		})
	}
}

func FuzzRenew(f *testing.F) {
	good, _, err := Renew(Store{}, nil, names, epoch, time.Hour)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good.Authorities, good.AuthorityKey, good.Serving, good.ServingKey, good.Authorities)
	f.Add(good.Serving, good.ServingKey, good.Authorities, good.AuthorityKey, []byte("-----BEGIN CERTIFICATE-----"))
	f.Fuzz(func(t *testing.T, authorities, key, serving, servingKey, trusted []byte) {
		s, _, err := Renew(Store{authorities, key, serving, servingKey}, trusted, names, epoch, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if err := accepts(s.Authorities, s, epoch); err != nil {
			t.Error(err)
		}
	})
}
