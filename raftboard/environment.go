package raftboard

import (
	"cmp"
	"os"
	"strings"

	"github.com/conductord/conductord/raftboard/credentials"
)

// DefaultEndpoint is the node to ask where nothing names one.
const DefaultEndpoint = "127.0.0.1:7070"

// FromEnvironment makes options of the environment variables of the command line: the nodes of
// CONDUCTORD_SERVER, separated by commas, or DefaultEndpoint; the token of the file
// CONDUCTORD_TOKEN_FILE, or CONDUCTORD_TOKEN; and TLS with the files CONDUCTORD_CA_FILE,
// CONDUCTORD_CERT_FILE and CONDUCTORD_KEY_FILE.
func FromEnvironment() (o Options, err error) {
	o.Endpoints = split(cmp.Or(os.Getenv("CONDUCTORD_SERVER"), DefaultEndpoint))
	files := credentials.Files{CA: os.Getenv("CONDUCTORD_CA_FILE"), Cert: os.Getenv("CONDUCTORD_CERT_FILE"), Key: os.Getenv("CONDUCTORD_KEY_FILE")}
	if !files.Empty() {
		if o.Credentials, err = credentials.Open(files, func(error) {}); err != nil {
			return o, err
		}
	}
	if o.Token = os.Getenv("CONDUCTORD_TOKEN"); os.Getenv("CONDUCTORD_TOKEN_FILE") != "" {
		o.Token, err = credentials.ReadToken(os.Getenv("CONDUCTORD_TOKEN_FILE"))
	}
	return o, err
}

func split(lists ...string) (endpoints []string) {
	for endpoint := range strings.SplitSeq(strings.Join(lists, ","), ",") {
		if endpoint = strings.TrimSpace(endpoint); endpoint != "" {
			endpoints = append(endpoints, endpoint)
		}
	}
	return endpoints
}
