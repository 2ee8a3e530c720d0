package certificate

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
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

// TestNoGap lets two replicas renew and serve for months, each looking now and then, while the API server learns late what to
// trust: at no moment may it refuse what either serves.
func TestNoGap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lifetime := rapid.SampledFrom([]time.Duration{time.Minute, 5 * time.Minute, time.Hour, 90 * 24 * time.Hour}).Draw(t, "lifetime")
		period := Period(lifetime)
		first, _, err := Renew(Store{}, nil, names, epoch, lifetime)
		if err != nil {
			t.Fatal(err)
		}
		store, served := first, [2]Store{first, first}
		trusted, stale := first.Authorities, first.Authorities // in the configuration, and as the API server last heard of it
		serials, authorities := map[string]bool{}, map[string]bool{}
		end := epoch.Add(10 * lifetime)
		step := max(period, lifetime/200)
		for now := epoch; now.Before(end); {
			now = now.Add(time.Duration(rapid.Int64Range(int64(step/4), int64(step)).Draw(t, "pause")))
			stale = trusted // it hears within one step
			r := rapid.IntRange(0, 1).Draw(t, "replica")
			next, _, err := Renew(store, trusted, names, now, lifetime)
			if err != nil {
				t.Fatal(err)
			}
			store, served[r] = next, next
			if rapid.IntRange(0, 3).Draw(t, "patched") > 0 { // or the API server does not answer just now
				trusted = next.Authorities
			}
			serials[read(next.Serving)[0].SerialNumber.String()] = true
			authorities[read(next.Authorities)[0].SerialNumber.String()] = true
			if n := len(read(next.Authorities)); n > 4 {
				t.Fatalf("%d authorities", n)
			}
			if err := accepts(stale, served[r], now); err != nil {
				t.Fatalf("after %v replica %d is refused: %v", now.Sub(epoch), r, err)
			}
			served[1-r] = store // it reads the Secret within a period
			if err := accepts(stale, served[1-r], now); err != nil {
				t.Fatalf("after %v replica %d is refused: %v", now.Sub(epoch), 1-r, err)
			}
		}
		if len(serials) < 10 || len(authorities) < 4 {
			t.Fatalf("%d certificates of %d authorities in ten lifetimes", len(serials), len(authorities))
		}
	})
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
