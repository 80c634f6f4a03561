package raftboard

import (
	"cmp"
	"os"
	"strings"

	"github.com/conductord/conductord/raftboard/credentials"
	"github.com/conductord/conductord/valuekeys"
)

// DefaultEndpoint is the default node.
const DefaultEndpoint = "127.0.0.1:7070"

// FromEnvironment makes options from the environment variables of the command line.
// CONDUCTORD_SERVER has the nodes, separated by commas; default: DefaultEndpoint.
// CONDUCTORD_TOKEN_FILE names the file of the token, or CONDUCTORD_TOKEN has the token.
// CONDUCTORD_CA_FILE, CONDUCTORD_CERT_FILE and CONDUCTORD_KEY_FILE name the files for TLS.
// CONDUCTORD_VALUE_KEYS names the file of value keys.
func FromEnvironment() (o Options, err error) {
	o.Endpoints = split(cmp.Or(os.Getenv("CONDUCTORD_SERVER"), DefaultEndpoint))
	files := credentials.Files{CA: os.Getenv("CONDUCTORD_CA_FILE"), Cert: os.Getenv("CONDUCTORD_CERT_FILE"), Key: os.Getenv("CONDUCTORD_KEY_FILE")}
	if !files.Empty() {
		if o.Credentials, err = credentials.Open(files, func(error) {}); err != nil {
			return o, err
		}
	}
	if o.Token = os.Getenv("CONDUCTORD_TOKEN"); os.Getenv("CONDUCTORD_TOKEN_FILE") != "" {
		if o.Token, err = credentials.ReadToken(os.Getenv("CONDUCTORD_TOKEN_FILE")); err != nil {
			return o, err
		}
	}
	if path := os.Getenv("CONDUCTORD_VALUE_KEYS"); path != "" {
		o.ValueKeys, err = valuekeys.Open(path)
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
