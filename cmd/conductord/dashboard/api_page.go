package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/cmd/conductord/cli"
	"github.com/conductord/conductord/docs"
	"github.com/conductord/conductord/raftboard/wire"
)

// apiService is a service of the API.
type apiService struct {
	Name  string
	Calls []apiCall
}

// apiCall is a call of the API: its name and fields from the .proto files, the rest from docs/protocol.md.
type apiCall struct {
	Name, Permission string
	Text             []textPart
	Fields           []string // of the request
	Example          string   // of a request, in JSON
	Curl             string   // empty: curl cannot make the call
}

// textPart is a part of a paragraph.
type textPart struct {
	Text string
	Code bool
}

// loadAPI shows each call of the API, with a command line that makes the call at this node, under
// the address in the browser.
func loadAPI(_ context.Context, v *visit) (view, error) {
	services := v1.File_conductord_v1_service_proto.Services()
	all := make([]apiService, services.Len())
	for i := range all {
		shown, methods := &all[i], services.Get(i).Methods()
		shown.Name = string(services.Get(i).Name())
		for j := range methods.Len() {
			method := methods.Get(j)
			name := shown.Name + "/" + string(method.Name())
			said := docs.Calls()[name]
			call := apiCall{Name: string(method.Name()), Permission: said.Permission, Text: textParts(said.Text), Fields: apiFields(method.Input().Fields())}
			if said.Request != "" {
				var example, line bytes.Buffer
				if err := errors.Join(json.Compact(&line, []byte(said.Request)), json.Indent(&example, []byte(said.Request), "", "  ")); err != nil {
					return view{}, err
				}
				call.Example, call.Curl = example.String(), v.curl(name, line.String(), method.IsStreamingServer())
			}
			shown.Calls = append(shown.Calls, call)
		}
	}
	return view{Title: "API", Data: all}, nil
}

// apiFields are the fields of a request, each with its type.
func apiFields(fields protoreflect.FieldDescriptors) (shown []string) {
	for i := range fields.Len() {
		field := fields.Get(i)
		kind := field.Kind().String()
		if field.IsMap() {
			kind = "map"
		} else if field.Message() != nil {
			kind = string(field.Message().Name())
		}
		if field.IsList() {
			kind = "list of " + kind
		}
		shown = append(shown, string(field.Name())+" ("+kind+")")
	}
	return shown
}

// curl is the command line of a call.
func (v *visit) curl(name, request string, streams bool) string {
	line := "curl -sS"
	if streams {
		line += " -N"
	}
	if v.request.TLS != nil && !v.dashboard.options.proxied(v.request.Host) {
		line += " --cacert ca.pem"
	}
	if v.dashboard.options.AccessControl {
		line += ` -H "Authorization: Bearer $CONDUCTORD_TOKEN"`
	}
	line += " -H 'Content-Type: application/json' " + cli.Quoted(v.dashboard.options.origin(v.request)+wire.Prefix+name) + " -d " + cli.Quoted(request)
	if name == "ClusterService/Backup" { // its answer is a file
		line += " > backup.tar"
	}
	return line
}

// markup is a link or an emphasis of Markdown.
var markup = regexp.MustCompile("\\[([^\\]]*)\\]\\([^)]*\\)|\\*+(\\w[^*`]*)\\*+")

// textParts is a paragraph of Markdown without its links and emphasis.
func textParts(markdown string) (parts []textPart) {
	for i, text := range strings.Split(markup.ReplaceAllString(markdown, "$1$2"), "`") {
		parts = append(parts, textPart{text, i%2 == 1})
	}
	return parts
}
