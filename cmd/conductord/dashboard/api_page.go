package dashboard

import (
	"bytes"
	"context"
	"encoding/json"
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

// apiCall is a call of the API: its fields from the .proto files, the rest from docs/protocol.md.
type apiCall struct {
	Name, Permission string
	Text             []textPart
	Fields           []apiField
	Example          string // of a request, in JSON
	Curl             string // empty: curl cannot make the call
}

// apiField is a field of a request.
type apiField struct{ Name, Kind string }

// textPart is a part of a paragraph.
type textPart struct {
	Text string
	Code bool
}

// loadAPI shows each call of the API, with a command line that makes it at the address that the browser has used.
func loadAPI(_ context.Context, v *visit) (view, error) {
	known := docs.Calls()
	var services []apiService
	for service := range all(v1.File_conductord_v1_service_proto.Services()) {
		shown := apiService{Name: string(service.Name())}
		for method := range all(service.Methods()) {
			name := shown.Name + "/" + string(method.Name())
			said := known[name]
			call := apiCall{Name: string(method.Name()), Permission: said.Permission, Text: textParts(said.Text), Fields: apiFields(method.Input())}
			if said.Request != "" {
				var example, line bytes.Buffer
				if err := json.Compact(&line, []byte(said.Request)); err != nil {
					return view{}, err
				}
				_ = json.Indent(&example, line.Bytes(), "", "  ")
				call.Example, call.Curl = example.String(), v.curl(name, line.String(), method.IsStreamingServer())
			}
			shown.Calls = append(shown.Calls, call)
		}
		services = append(services, shown)
	}
	return view{Title: "API", Data: services}, nil
}

// all are the items of a list of descriptors.
func all[D any](list interface {
	Len() int
	Get(i int) D
},
) func(yield func(D) bool) {
	return func(yield func(D) bool) {
		for i := 0; i < list.Len() && yield(list.Get(i)); i++ {
		}
	}
}

func apiFields(message protoreflect.MessageDescriptor) (fields []apiField) {
	for field := range all(message.Fields()) {
		kind := field.Kind().String()
		switch {
		case field.IsMap():
			kind = "map"
		case field.Message() != nil:
			kind = string(field.Message().Name())
		}
		if field.IsList() {
			kind = "list of " + kind
		}
		fields = append(fields, apiField{string(field.Name()), kind})
	}
	return fields
}

// curl is the command line of a call.
func (v *visit) curl(name, request string, streams bool) string {
	line, scheme := "curl -sS", "http://"
	if streams {
		line += " -N"
	}
	if v.request.TLS != nil {
		line, scheme = line+" --cacert ca.pem", "https://"
	}
	if v.board.options.AccessControl {
		line += ` -H "Authorization: Bearer $CONDUCTORD_TOKEN"`
	}
	line += " -H 'Content-Type: application/json' " + cli.Quoted(scheme+v.request.Host+wire.Prefix+name) + " -d " + cli.Quoted(request)
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
