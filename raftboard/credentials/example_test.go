package credentials_test

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	"github.com/conductord/conductord/raftboard/credentials"
)

// A node's certificate names its cluster and the node.
func ExampleIssue() {
	authority, err := credentials.NewAuthority("our authority", 10*365*24*time.Hour)
	if err != nil {
		panic(err)
	}
	made, err := credentials.Issue(authority, credentials.Subject{
		Name: "n1", Cluster: "shop", Hosts: []string{"10.0.0.1", "n1.example.org"}, Valid: 365 * 24 * time.Hour,
	})
	if err != nil {
		panic(err)
	}
	block, _ := pem.Decode(made.Cert)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		panic(err)
	}
	fmt.Println(certificate.URIs[0], certificate.DNSNames, certificate.IPAddresses)
	// Output: conductord://shop/n1 [n1.example.org] [10.0.0.1]
}
