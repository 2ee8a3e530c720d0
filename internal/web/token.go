package web

import (
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

const (
	tokenName  = "token"
	tokenBytes = 32
)

// Token is the token of a state folder. It is made when there is none, and kept, so that a page that is open goes on after a
// restart. Only the daemon's user may read it; a file that others could write or read is replaced.
func Token(state string) (string, error) {
	path := filepath.Join(state, tokenName)
	if token, err := readToken(path); err == nil {
		return token, nil
	} else if !errors.Is(err, errNoToken) {
		return "", fmt.Errorf("token of the page: %w", err)
	}
	var random [tokenBytes]byte
	_, _ = rand.Read(random[:]) // it never fails
	token := base64.RawURLEncoding.EncodeToString(random[:])
	if err := writeToken(path, token); err != nil {
		return "", fmt.Errorf("token of the page: %w", err)
	}
	return token, nil
}

var errNoToken = errors.New("there is none")

func readToken(path string) (string, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", errNoToken
	}
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return "", errNoToken
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(data))
	if raw, err := base64.RawURLEncoding.DecodeString(token); err != nil || len(raw) != tokenBytes {
		return "", errNoToken
	}
	return token, nil
}

func writeToken(path, token string) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".token-*") // 0600
	if err != nil {
		return err
	}
	_, err = f.WriteString(token + "\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // it is of no use
	}
	return err
}

// PageURL is the address to open in a browser, with the token; without it for token "".
func PageURL(address net.Addr, token string) string {
	host := address.String()
	if tcp, ok := address.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		name, err := os.Hostname()
		if err != nil {
			name = "localhost"
		}
		host = net.JoinHostPort(name, fmt.Sprint(tcp.Port))
	}
	u := url.URL{Scheme: "http", Host: host, Path: "/"}
	if token != "" {
		u.RawQuery = url.Values{"token": {token}}.Encode()
	}
	return u.String()
}
