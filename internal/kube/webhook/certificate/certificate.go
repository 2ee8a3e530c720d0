// Package certificate makes the certificates that the API server trusts weft's webhook by: an authority of the webhook's own, and a
// serving certificate that it signs, both renewed in time.
//
// A renewal never leaves a moment in which some caller trusts nothing that is served. A new authority stands beside the old one
// among those trusted first; only when it has been seen where the API server looks does it sign what is served.
//
// Renew is pure but for random numbers: what there is, what is trusted and the time go in. Keeper acts on the cluster.
package certificate

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"
)

// Store is what is kept: in PEM, as in a Secret of type kubernetes.io/tls with an authority. Its zero value holds nothing.
type Store struct {
	Authorities  []byte // certificates, the newest first; all of them are to be trusted
	AuthorityKey []byte // of the newest
	Serving      []byte // certificate
	ServingKey   []byte
}

// Names of the keys of the Secret.
const (
	KeyAuthorities  = "ca.crt"
	KeyAuthorityKey = "ca.key"
	KeyServing      = "tls.crt"
	KeyServingKey   = "tls.key"
)

// StoreOf is the store in a Secret's data.
func StoreOf(data map[string][]byte) Store {
	return Store{Authorities: data[KeyAuthorities], AuthorityKey: data[KeyAuthorityKey], Serving: data[KeyServing], ServingKey: data[KeyServingKey]}
}

// Data is the store as a Secret's data.
func (s Store) Data() map[string][]byte {
	return map[string][]byte{KeyAuthorities: s.Authorities, KeyAuthorityKey: s.AuthorityKey, KeyServing: s.Serving, KeyServingKey: s.ServingKey}
}

// Lifetimes, as multiples of that of a serving certificate.
const (
	authorityLives = 4                // serving certificates, one after another, in the life of an authority
	settleShare    = 5                // of a lifetime is how long a new authority is only trusted, at most
	longestSettle  = 10 * time.Minute // which is enough for every API server to have heard of it
	skew           = time.Minute      // clocks may differ so much
	checkShare     = 20               // of a lifetime passes between two looks, at most
	longestCheck   = time.Minute
	shortest       = 10 * time.Second // lifetime: for tests
)

// Period is how often to look whether something is to be renewed.
func Period(lifetime time.Duration) time.Duration {
	return min(longestCheck, max(lifetime, shortest)/checkShare)
}

// Renew is the store as it should be now, for a server of these names, with certificates that serve for a lifetime, at least ten
// seconds. It says whether that differs from what there was. trusted are the authorities that the API server trusts now, in PEM. A
// store that cannot be read is made anew.
func Renew(s Store, trusted []byte, names []string, now time.Time, lifetime time.Duration) (Store, bool, error) {
	lifetime = max(lifetime, shortest)
	authorities := slices.DeleteFunc(valid(s.Authorities, now), func(c *x509.Certificate) bool { return !c.IsCA })
	key, err := readKey(s.AuthorityKey)
	lost := len(authorities) == 0 || err != nil || !belongs(key, authorities[0])
	if lost || now.After(middle(authorities[0])) || outlives(authorities[0], now, lifetime*authorityLives) {
		authority, k, err := newAuthority(now, lifetime*authorityLives)
		if err != nil {
			return s, false, err
		}
		authorities, key = append([]*x509.Certificate{authority}, authorities...), k
	}
	next := Store{Authorities: write(authorities...), Serving: s.Serving, ServingKey: s.ServingKey}
	if next.AuthorityKey, err = writeKey(key); err != nil {
		return s, false, err
	}
	settled := now.Sub(start(authorities[0])) >= min(longestSettle, lifetime/settleShare) && contains(trusted, authorities[0])
	if serves := next.serves(authorities, names, now); !serves || settled && next.due(authorities[0], now, lifetime) {
		if next.Serving, next.ServingKey, err = newServing(authorities[0], key, names, now, lifetime); err != nil {
			return s, false, err
		}
	}
	changed := !bytes.Equal(next.Authorities, s.Authorities) || !bytes.Equal(next.AuthorityKey, s.AuthorityKey) || !bytes.Equal(next.Serving, s.Serving)
	return next, changed, nil
}

// serves says whether the serving certificate is good now: for all names, by an authority of the list, with its key.
func (s *Store) serves(authorities []*x509.Certificate, names []string, now time.Time) bool {
	list := valid(s.Serving, now)
	if _, err := tls.X509KeyPair(s.Serving, s.ServingKey); err != nil || len(list) == 0 {
		return false
	}
	roots := x509.NewCertPool()
	for _, a := range authorities {
		roots.AddCert(a)
	}
	for _, name := range names {
		if _, err := list[0].Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: now}); err != nil {
			return false
		}
	}
	return true
}

// due says whether a serving certificate that is good should be replaced by one of the newest authority: in the last third of its
// life, when an older authority signed it, or when certificates are to live shorter than they were.
func (s *Store) due(newest *x509.Certificate, now time.Time, lifetime time.Duration) bool {
	list := valid(s.Serving, now)
	if len(list) == 0 {
		return true
	}
	c := list[0]
	const late = 3 // a third of its life is left
	return now.After(c.NotAfter.Add(-c.NotAfter.Sub(start(c))/late)) || outlives(c, now, lifetime) || c.CheckSignatureFrom(newest) != nil
}

// outlives says whether a certificate is good for longer than one that is made now. Times in certificates are whole seconds.
func outlives(c *x509.Certificate, now time.Time, life time.Duration) bool {
	return c.NotAfter.After(now.Add(life + time.Second))
}

// start is when a certificate was made.
func start(c *x509.Certificate) time.Time { return c.NotBefore.Add(skew) }

// middle is the time at which half of a certificate's life is over.
func middle(c *x509.Certificate) time.Time { return start(c).Add(c.NotAfter.Sub(start(c)) / 2) }

// contains says whether a certificate is among others.
func contains(text []byte, c *x509.Certificate) bool {
	for _, other := range read(text) {
		if other.Equal(c) {
			return true
		}
	}
	return false
}

func belongs(key *ecdsa.PrivateKey, c *x509.Certificate) bool {
	public, ok := c.PublicKey.(*ecdsa.PublicKey)
	return ok && key.PublicKey.Equal(public)
}

// newAuthority is a certificate that signs others.
func newAuthority(now time.Time, life time.Duration) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	t := &x509.Certificate{
		Subject: pkix.Name{CommonName: "weft webhook authority"}, NotBefore: now.Add(-skew), NotAfter: now.Add(life),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	c, err := sign(t, t, key.Public(), key)
	return c, key, err
}

// newServing is a certificate for a server, with its key. It ends no later than its authority.
func newServing(authority *x509.Certificate, by *ecdsa.PrivateKey, names []string, now time.Time, life time.Duration) (c, key []byte, err error) {
	end := now.Add(life)
	if end.After(authority.NotAfter) {
		end = authority.NotAfter
	}
	t := &x509.Certificate{
		Subject: pkix.Name{CommonName: names[0]}, DNSNames: names, NotBefore: now.Add(-skew), NotAfter: end,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	signed, err := sign(t, authority, own.Public(), by)
	if err != nil {
		return nil, nil, err
	}
	key, err = writeKey(own)
	return write(signed), key, err
}

// sign completes a certificate.
func sign(t, parent *x509.Certificate, public crypto.PublicKey, by *ecdsa.PrivateKey) (*x509.Certificate, error) {
	const serialBits = 128
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, fmt.Errorf("draw a serial number: %w", err)
	}
	t.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, t, parent, public, by)
	if err != nil {
		return nil, fmt.Errorf("sign a certificate: %w", err)
	}
	return x509.ParseCertificate(der)
}

// valid are the certificates of a text that have not ended, in order.
func valid(text []byte, now time.Time) []*x509.Certificate {
	var list []*x509.Certificate
	for _, c := range read(text) {
		if now.Before(c.NotAfter) {
			list = append(list, c)
		}
	}
	return list
}

// read is the certificates of a text, without what cannot be read.
func read(text []byte) []*x509.Certificate {
	var list []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return list
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			list = append(list, c)
		}
	}
}

func write(list ...*x509.Certificate) []byte {
	var text []byte
	for _, c := range list {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return text
}

func readKey(text []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("no key")
	}
	return x509.ParseECPrivateKey(block.Bytes)
}

func writeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("write a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}
