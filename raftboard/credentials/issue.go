package credentials

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"time"
)

// Blocks of PEM files.
const (
	certificateBlock = "CERTIFICATE"
	keyBlock         = "PRIVATE KEY"
)

// clockMargin is the maximum lag of a machine's clock against the authority's clock.
const clockMargin = time.Hour

// Issued is a certificate with its key, both as PEM.
type Issued struct{ Cert, Key []byte }

// Subject is the holder of a new certificate.
type Subject struct {
	Name    string
	Cluster string   // of a node; empty: for a client
	Hosts   []string // names and IP addresses at which clients reach a node
	Valid   time.Duration
}

// NewAuthority makes a private authority, for a cluster without an existing one.
func NewAuthority(name string, valid time.Duration) (Issued, error) {
	template, err := newTemplate(name, valid)
	if err != nil {
		return Issued{}, err
	}
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
	return sign(template, nil, nil)
}

// Issue makes a certificate and its key. authority is a result of NewAuthority, or an equivalent.
func Issue(authority Issued, subject Subject) (Issued, error) {
	issuers, err := parseCertificates(authority.Cert)
	if err != nil {
		return Issued{}, fmt.Errorf("cannot use the authority: %w", err)
	}
	key, err := parseKey(authority.Key)
	if err != nil {
		return Issued{}, fmt.Errorf("cannot use the authority's key: %w", err)
	}
	template, err := newTemplate(subject.Name, subject.Valid)
	if err != nil {
		return Issued{}, err
	}
	if template.NotAfter.After(issuers[0].NotAfter) {
		return Issued{}, fmt.Errorf("the authority expires on %s, before the end of this certificate", issuers[0].NotAfter.Format(time.DateOnly))
	}
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if subject.Cluster != "" {
		template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
		template.URIs = []*url.URL{NodeURI(subject.Cluster, subject.Name)}
		for _, host := range subject.Hosts {
			if ip := net.ParseIP(host); ip != nil {
				template.IPAddresses = append(template.IPAddresses, ip)
				continue
			}
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	return sign(template, issuers[0], key)
}

func newTemplate(name string, valid time.Duration) (*x509.Certificate, error) {
	if name == "" || valid <= 0 {
		return nil, errors.New("a certificate requires a name and a validity period")
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-clockMargin), NotAfter: now.Add(valid),
	}, nil
}

// sign makes a key and a certificate; without an issuer it signs itself.
func sign(template, issuer *x509.Certificate, issuerKey crypto.Signer) (Issued, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Issued{}, err
	}
	if issuer == nil {
		issuer, issuerKey = template, key
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, issuer, key.Public(), issuerKey)
	if err != nil {
		return Issued{}, err
	}
	if _, err := x509.ParseCertificate(certificate); err != nil {
		return Issued{}, fmt.Errorf("these names are invalid in a certificate: %w", err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return Issued{}, err
	}
	return Issued{
		Cert: pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: certificate}),
		Key:  pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: encoded}),
	}, nil
}

// parseCertificates reads the certificates of a PEM file, which must contain at least one.
func parseCertificates(data []byte) (all []*x509.Certificate, err error) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != certificateBlock {
			continue
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		all = append(all, certificate)
	}
	if len(all) == 0 {
		return nil, errors.New("it contains no PEM certificate")
	}
	return all, nil
}

func parseKey(data []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != keyBlock {
		return nil, errors.New("it contains no PEM key (PKCS 8)")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key does not belong to the certificate of the authority")
	}
	return signer, nil
}
