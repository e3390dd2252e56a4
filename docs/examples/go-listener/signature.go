package main

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	tolerance  = 300
	maxEntries = 16
)

var stampPattern = regexp.MustCompile(`^[0-9]{1,12}$`)

type publicKey struct {
	key        ed25519.PublicKey
	start, end float64
}

// Keys are what a listener checks with: the tenant's public keys, and a shared secret where there is one. A program
// that runs for months reads the file again when it was replaced; this one reads it at its start.
type Keys struct {
	public []publicKey
	secret []byte
}

// LoadKeys reads a JWKS file (RFC 8037, windows as nbf and exp) and a secret (`whsec_` and base64).
func LoadKeys(path, secret string) (*Keys, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var set struct {
		Keys []struct {
			Kty, Crv, X string
			Nbf, Exp    *float64
		}
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, err
	}
	keys := &Keys{}
	for _, entry := range set.Keys {
		if entry.Kty != "OKP" || entry.Crv != "Ed25519" {
			continue
		}
		raw, err := base64.RawURLEncoding.DecodeString(entry.X)
		if err != nil || len(raw) != ed25519.PublicKeySize {
			return nil, errors.New("a key of the JWKS is damaged")
		}
		found := publicKey{key: raw, end: math.Inf(1)}
		if entry.Nbf != nil {
			found.start = *entry.Nbf
		}
		if entry.Exp != nil {
			found.end = *entry.Exp
		}
		keys.public = append(keys.public, found)
	}
	if secret != "" {
		keys.secret, err = base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	}
	return keys, err
}

// Verify decides over the raw bytes, before anything else looks at them.
func (k *Keys) Verify(header http.Header, body []byte, now time.Time) error {
	id, stampText, list := single(header, "webhook-id"), single(header, "webhook-timestamp"), single(header, "webhook-signature")
	if id == "" || stampText == "" || list == "" {
		return refuse(401, "AUTH", "missing_header")
	}
	if !stampPattern.MatchString(stampText) {
		return refuse(401, "AUTH", "malformed_header")
	}
	stamp, _ := strconv.ParseInt(stampText, 10, 64)
	switch age := now.Unix() - stamp; {
	case age > tolerance:
		return refuse(401, "AUTH", "timestamp_too_old")
	case age < -tolerance:
		return refuse(401, "AUTH", "timestamp_too_new")
	}
	content := append([]byte(id+"."+stampText+"."), body...)
	for at, entry := range strings.Split(list, " ") {
		kind, encoded, _ := strings.Cut(entry, ",")
		if at >= maxEntries || (kind != "v1" && kind != "v1a") {
			continue
		}
		signature, err := base64.StdEncoding.Strict().DecodeString(encoded)
		if err != nil {
			return refuse(401, "AUTH", "malformed_header")
		}
		if k.made(kind, signature, content, float64(stamp)) {
			return nil
		}
	}
	return refuse(401, "AUTH", "signature_mismatch")
}

func (k *Keys) made(kind string, signature, content []byte, stamp float64) bool {
	if kind == "v1" {
		mac := hmac.New(sha256.New, k.secret)
		mac.Write(content)
		return k.secret != nil && hmac.Equal(mac.Sum(nil), signature)
	}
	for _, public := range k.public {
		if public.start <= stamp && stamp < public.end && ed25519.Verify(public.key, content, signature) {
			return true
		}
	}
	return false
}

// single returns a header that came once; one that came twice has no value, because two readers could pick differently.
func single(header http.Header, name string) string {
	if values := header.Values(name); len(values) == 1 {
		return values[0]
	}
	return ""
}
