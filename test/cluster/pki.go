package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"path/filepath"
	"time"
)

// authority signs the certificates of one cluster. It lives as long as Up runs; its key is kept for the controller manager,
// which signs what certificate requests ask for.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string
}

// validity is far longer than a cluster lives, and begins earlier in case that clocks differ.
const validity = 365 * 24 * time.Hour

func newAuthority(dir string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificate("weft cluster")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	a := &authority{key: key, dir: dir}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	return a, a.save("ca", der, key)
}

func certificate(name string, groups ...string) *x509.Certificate {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		panic(err) // the system's random source never fails
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name, Organization: groups},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(validity),
	}
}

// issue writes NAME.crt and NAME.key for one that serves at the addresses and, as a client, is the user of that common name
// in the groups.
func (a *authority) issue(name, user string, groups, addresses []string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := certificate(user, groups...)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, at := range addresses {
		if ip := net.ParseIP(at); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, at)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return fmt.Errorf("certificate %s: %w", name, err)
	}
	return a.save(name, der, key)
}

func (a *authority) save(name string, der []byte, key *ecdsa.PrivateKey) error {
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := a.saveBlock(name+".crt", "CERTIFICATE", der); err != nil {
		return err
	}
	return a.saveBlock(name+".key", "EC PRIVATE KEY", private)
}

func (a *authority) saveBlock(name, kind string, der []byte) error {
	return writeWhole(filepath.Join(a.dir, name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

// saveAccounts writes the pair of keys that ServiceAccount tokens are signed with: sa.key and sa.pub.
func (a *authority) saveAccounts() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := a.saveBlock("sa.key", "EC PRIVATE KEY", private); err != nil {
		return err
	}
	return a.saveBlock("sa.pub", "PUBLIC KEY", public)
}

// secret is a token that nobody guesses.
func secret() string {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		panic(err) // the system's random source never fails
	}
	return hex.EncodeToString(b)
}
