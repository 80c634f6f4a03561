// Command generate writes the Go code of the .proto files beside it. It
// compiles them in Go and runs the protobuf plugins that go.mod pins as tools,
// so that nobody needs to install protoc. Run it by "make api".
package main

import (
	"bytes"
	"context"
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// plugins are what is run, in this order, with their parameters. vtproto
// writes the size, the encoding and the decoding of each message as plain code,
// which takes a fraction of the time that protobuf's tables take.
var plugins = []struct{ name, parameter string }{
	{"protoc-gen-go", "paths=source_relative"},
	{"protoc-gen-connect-go", "paths=source_relative"},
	{"protoc-gen-go-vtproto", "paths=source_relative,features=marshal+unmarshal+size"},
}

// unordered is how vtproto goes through a map while it writes it, from its
// end to its beginning: in Go's order, which is another each time. ordered
// writes the keys in their order. State and digests are the same on every
// node only so.
var unordered = regexp.MustCompile(`for k := range (m\.\w+) \{`)

const ordered = "for _, k := range slices.Backward(slices.Sorted(maps.Keys($1))) {"

func main() {
	root := "api"
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	if err := generate(root); err != nil {
		fmt.Fprintln(os.Stderr, "cannot generate:", err)
		os.Exit(1)
	}
}

func generate(root string) error {
	sources, err := filepath.Glob(filepath.Join(root, "conductord", "v1", "*.proto"))
	if err != nil || len(sources) == 0 {
		return fmt.Errorf("no .proto files below %s (%v)", root, err)
	}
	var names []string
	for _, source := range sources {
		name, err := filepath.Rel(root, source)
		if err != nil {
			return err
		}
		names = append(names, filepath.ToSlash(name))
	}
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{root}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(context.Background(), names...)
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{FileToGenerate: names}
	seen := map[string]bool{}
	for _, file := range files {
		request.ProtoFile = appendWithImports(request.ProtoFile, file, seen)
	}
	for _, plugin := range plugins {
		request.Parameter = &plugin.parameter
		if err := run(plugin.name, request, root); err != nil {
			return fmt.Errorf("%s: %w", plugin.name, err)
		}
	}
	return writeFinders(root, request)
}

// appendWithImports puts a file behind everything it imports, as plugins ask.
func appendWithImports(to []*descriptorpb.FileDescriptorProto, file protoreflect.FileDescriptor, seen map[string]bool) []*descriptorpb.FileDescriptorProto {
	if seen[file.Path()] {
		return to
	}
	seen[file.Path()] = true
	for i := range file.Imports().Len() {
		to = appendWithImports(to, file.Imports().Get(i).FileDescriptor, seen)
	}
	return append(to, protoutil.ProtoFromFileDescriptor(file))
}

func run(plugin string, request *pluginpb.CodeGeneratorRequest, root string) error {
	input, err := proto.Marshal(request)
	if err != nil {
		return err
	}
	command := exec.Command("go", "tool", plugin)
	command.Stdin = bytes.NewReader(input)
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(output, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return fmt.Errorf("%s", response.GetError())
	}
	return write(root, response.File)
}

func write(root string, files []*pluginpb.CodeGeneratorResponse_File) error {
	slices.SortFunc(files, func(a, b *pluginpb.CodeGeneratorResponse_File) int {
		return bytes.Compare([]byte(a.GetName()), []byte(b.GetName()))
	})
	for _, file := range files {
		path := filepath.Join(root, filepath.FromSlash(file.GetName()))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		content, err := orderMaps([]byte(file.GetContent()))
		if err != nil {
			return fmt.Errorf("cannot order the maps of %s: %w", path, err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// orderMaps makes the code of a file write maps in the order of their keys.
func orderMaps(content []byte) ([]byte, error) {
	if !unordered.Match(content) {
		return content, nil
	}
	content = unordered.ReplaceAll(content, []byte(ordered))
	content = bytes.Replace(content, []byte("import (\n"), []byte("import (\n\tmaps \"maps\"\n\tslices \"slices\"\n"), 1)
	return format.Source(content)
}
