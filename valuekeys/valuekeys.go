// Package valuekeys encrypts the values of jobs and flows, so that the nodes of a cluster and its backups contain
// no value in plain text.
//
// Keys are read from a file that only its owner can read. The first key encrypts, and all decrypt.
// To replace a key, put the new key first, and keep an old key as long as any value encrypted with
// it exists. An encrypted value is the text
//
//	$encrypted:1:KEY:BASE64$
//
// with the number of the format, the key's id, and the base64 of a nonce and the ciphertext of
// AES-256-GCM. For a JSON value, the text is a JSON string.
//
// Guarantees: equal values in the same Place have equal texts, so a call that is repeated writes the
// same bytes. A text that was changed, or moved to another Place, is refused. Without the key, a text
// reveals the key's id, the length of the value, and whether two values in one Place are equal. Texts
// of one Place can be swapped without detection.
//
// It assumes that fewer than 2^48 different values are encrypted with one key.
package valuekeys

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/conductord/conductord/logbook"
)

// The errors of Decrypt.
var (
	// ErrNoKey: the value was encrypted with a key that is not among the keys.
	ErrNoKey = errors.New("there is no such key")
	// ErrRefused: the key has not made this text for this place.
	ErrRefused = errors.New("the encrypted value was changed or moved, or it was encrypted with another key of the same id")
)

// Place identifies the position of a value, such as a field of a job. The encryption covers it: a
// value that is moved to another place is refused there, and equal values in different places have
// different texts.
type Place struct {
	Owner string // id of the job, book or flow; empty if the value is written before the owner exists
	Step  string // of a flow
	Field string // store, args, result, …
	Name  string // name of a value among several
}

// Keys are the keys of one file. They never change, and may be used concurrently.
type Keys struct {
	keys []key // the first one encrypts
}

type key struct {
	id     string
	secret []byte // as written in the file
	nonces []byte // the key of HMAC
	aead   cipher.AEAD
}

const (
	// secretSize is the size of an AES-256 key, in bytes.
	secretSize = 32
	prefix     = "$encrypted:1:"
	suffix     = "$"
)

// newKey derives two keys from one secret, because one key must not serve two algorithms.
func newKey(id string, secret []byte) (key, error) {
	encrypting, err := hkdf.Key(sha256.New, secret, nil, "conductord values: encrypt", secretSize)
	if err != nil {
		return key{}, err
	}
	nonces, err := hkdf.Key(sha256.New, secret, nil, "conductord values: nonce", secretSize)
	if err != nil {
		return key{}, err
	}
	block, err := aes.NewCipher(encrypting)
	if err != nil {
		return key{}, err
	}
	aead, err := cipher.NewGCM(block)
	return key{id: id, secret: secret, nonces: nonces, aead: aead}, err
}

// Current is the id of the key that encrypts.
func (k *Keys) Current() string { return k.keys[0].id }

// IDs are the ids of all keys, in the order of the file.
func (k *Keys) IDs() []string {
	ids := make([]string, len(k.keys))
	for i := range k.keys {
		ids[i] = k.keys[i].id
	}
	return ids
}

// Encrypt encrypts a value with the current key.
func (k *Keys) Encrypt(place Place, plain []byte) string {
	current := &k.keys[0]
	protected := current.protected(place)
	nonce := current.nonce(protected, plain)
	text := current.aead.Seal(nonce, nonce, plain, protected)
	return prefix + current.id + ":" + base64.StdEncoding.EncodeToString(text) + suffix
}

// EncryptJSON encrypts a JSON value to a JSON string.
func (k *Keys) EncryptJSON(place Place, plain json.RawMessage) json.RawMessage {
	return json.RawMessage(`"` + k.Encrypt(place, plain) + `"`) // nothing in the text needs an escape
}

// Decrypt is the inverse of Encrypt. The value may belong to any of the places. ErrNoKey,
// ErrRefused.
func (k *Keys) Decrypt(text string, places ...Place) ([]byte, error) {
	match := pattern.FindStringSubmatch(text)
	if match == nil || match[0] != text {
		return nil, fmt.Errorf("%w: it is not an encrypted value", ErrRefused)
	}
	for i := range k.keys {
		if one := &k.keys[i]; one.id == match[1] {
			return one.decrypt(match[2], places)
		}
	}
	return nil, fmt.Errorf("%w: %s", ErrNoKey, match[1])
}

// DecryptJSON is the inverse of EncryptJSON. ErrNoKey, ErrRefused.
func (k *Keys) DecryptJSON(value json.RawMessage, places ...Place) (json.RawMessage, error) {
	text, ok := textOf(value)
	if !ok {
		return nil, fmt.Errorf("%w: it is not an encrypted value", ErrRefused)
	}
	return k.Decrypt(text, places...)
}

// DecryptWithin decrypts the encrypted values within a text, because nodes combine texts. Values
// that it cannot decrypt stay encrypted.
func (k *Keys) DecryptWithin(text string, places ...Place) string {
	if !strings.Contains(text, prefix) {
		return text
	}
	return pattern.ReplaceAllStringFunc(text, func(encrypted string) string {
		plain, err := k.Decrypt(encrypted, places...)
		if err != nil {
			return encrypted
		}
		return string(plain)
	})
}

func (k *key) decrypt(encoded string, places []Place) ([]byte, error) {
	text, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || len(text) < k.aead.NonceSize() {
		return nil, ErrRefused
	}
	nonce, ciphertext := text[:k.aead.NonceSize()], text[k.aead.NonceSize():]
	for _, place := range places {
		if plain, err := k.aead.Open(nil, nonce, ciphertext, k.protected(place)); err == nil {
			return plain, nil
		}
	}
	return nil, ErrRefused
}

// protected is the additional data of the encryption: each part of the place, preceded by its
// length, so that no two places have the same bytes.
func (k *key) protected(place Place) []byte {
	var bound []byte
	for _, part := range []string{k.id, place.Owner, place.Step, place.Field, place.Name} {
		bound = binary.BigEndian.AppendUint32(bound, uint32(len(part)))
		bound = append(bound, part...)
	}
	return bound
}

// nonce is a function of the value and its place. With a random nonce, a repeated call would
// differ, and the state machine compares repeats byte by byte.
func (k *key) nonce(protected, plain []byte) []byte {
	mac := hmac.New(sha256.New, k.nonces)
	mac.Write(binary.BigEndian.AppendUint32(nil, uint32(len(protected))))
	mac.Write(protected)
	mac.Write(plain)
	return mac.Sum(nil)[:k.aead.NonceSize()]
}

// pattern finds an encrypted text. It ends at the closing $, because base64 has no $.
var pattern = regexp.MustCompile(`\$encrypted:1:(` + idPattern + `):([A-Za-z0-9+/=]+)\$`)

// shortened also matches an encrypted text without its end.
var shortened = regexp.MustCompile(`"?\$encrypted:1:(` + idPattern + `):[A-Za-z0-9+/=]*(\$"?|…)?`)

// KeyID returns the id of the key with which a JSON value was encrypted; false for a plain
// value.
func KeyID(value json.RawMessage) (id string, encrypted bool) {
	text, ok := textOf(value)
	if !ok {
		return "", false
	}
	match := pattern.FindStringSubmatch(text)
	if match == nil || match[0] != text {
		return "", false
	}
	return match[1], true
}

// textOf is the content of a JSON string without escapes.
func textOf(value json.RawMessage) (string, bool) {
	value = bytes.TrimSpace(value)
	if !bytes.HasPrefix(value, []byte(`"`+prefix)) || !bytes.HasSuffix(value, []byte(suffix+`"`)) {
		return "", false
	}
	return string(value[1 : len(value)-1]), true
}

// Shown makes a text for display: it replaces encrypted values by "[encrypted with key ID]". Nodes
// cut long texts when they combine several, and no key decrypts a cut value.
func Shown(text string) string {
	if !strings.Contains(text, prefix) {
		return text
	}
	return shortened.ReplaceAllStringFunc(text, func(encrypted string) string {
		match := shortened.FindStringSubmatch(encrypted)
		if !strings.HasPrefix(match[2], suffix) {
			return "[encrypted with key " + match[1] + ", and cut short]"
		}
		return "[encrypted with key " + match[1] + "]"
	})
}

// overhead is the maximum extra length of an encrypted JSON value, compared with base64.
const overhead = len(`"`+prefix+":"+suffix+`"`) + maxID

// nonceAndTag is the extra length of a ciphertext, in bytes.
const nonceAndTag = 12 + 16

// PlainTextSize is the size of a text before its encryption, or of a plain text.
func PlainTextSize(text string) int {
	match := pattern.FindStringSubmatch(text)
	if match == nil || match[0] != text {
		return len(text)
	}
	return max(0, base64.StdEncoding.DecodedLen(len(match[2]))-strings.Count(match[2], "=")-nonceAndTag)
}

// PlainSize is the maximum size of a plain value whose encrypted text has at most the given
// size.
func PlainSize(size int) int {
	return max(0, (size-overhead)/4*3-nonceAndTag)
}

// PlainLimits returns the limits for plain values, so that the encrypted values stay within the limits
// of a cluster. Small values grow most, and an update of a flow can have many, so the limit of a
// command shrinks most. With nil keys, the limits are unchanged.
func (k *Keys) PlainLimits(limits logbook.Limits) logbook.Limits {
	if k == nil {
		return limits
	}
	limits.Value = PlainSize(limits.Value)
	limits.Command = limits.Command / 5 * 2
	return limits
}
