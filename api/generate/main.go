// Command generate writes the Go code of the .proto files beside it. It compiles them in Go
// and runs the protobuf plugins that go.mod pins as tools, so that protoc need not be
// installed. Run it with "make api".
package main

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// plugins run for every message, in this order.
var plugins = []string{"protoc-gen-go", "protoc-gen-connect-go"}

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
	fast, err := check(files)
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{FileToGenerate: names}
	seen := map[string]bool{}
	for _, file := range files {
		request.ProtoFile = appendWithImports(request.ProtoFile, file, seen)
	}
	request.Parameter = proto.String("paths=source_relative")
	for _, plugin := range plugins {
		if err := run(plugin, request, root); err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
	}
	quick := only(request, fast)
	quick.Parameter = proto.String("paths=source_relative,features=marshal+unmarshal+size")
	if err := run("protoc-gen-go-vtproto", quick, root); err != nil {
		return fmt.Errorf("protoc-gen-go-vtproto: %w", err)
	}
	return writeFinders(root, only(request, []string{"Entry"}))
}

// only is the request for some of our messages, with all messages that they contain.
func only(request *pluginpb.CodeGeneratorRequest, names []string) *pluginpb.CodeGeneratorRequest {
	known, held := map[string]*descriptorpb.DescriptorProto{}, map[string]bool{}
	for _, file := range request.ProtoFile {
		for _, message := range file.MessageType {
			known["."+file.GetPackage()+"."+message.GetName()] = message
		}
	}
	var hold func(name string)
	holdAll := func(message *descriptorpb.DescriptorProto) {
		for _, field := range message.Field {
			hold(field.GetTypeName())
		}
	}
	hold = func(name string) {
		message := known[name]
		if message == nil || held[name] {
			return
		}
		held[name] = true
		holdAll(message)
		for _, nested := range message.NestedType { // the entry messages of maps
			holdAll(nested)
		}
	}
	for _, name := range names {
		hold("." + ours + "." + name)
	}
	kept := proto.Clone(request).(*pluginpb.CodeGeneratorRequest)
	for _, file := range kept.ProtoFile {
		if file.GetPackage() != ours {
			continue
		}
		file.Service, file.Extension, file.SourceCodeInfo = nil, nil, nil
		file.MessageType = slices.DeleteFunc(file.MessageType, func(message *descriptorpb.DescriptorProto) bool {
			return !held["."+file.GetPackage()+"."+message.GetName()]
		})
	}
	return kept
}

// appendWithImports puts a file after all its imports, as plugins require.
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
		content, err := withoutUnused(file.GetContent())
		if err != nil {
			return fmt.Errorf("cannot read the code of %s: %w", path, err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// withoutUnused removes unused methods of vtproto: all messages are written into the caller's
// memory, by MarshalToSizedBufferVT.
func withoutUnused(content string) ([]byte, error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "", content, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var kept bytes.Buffer
	from := 0
	for _, declared := range file.Decls {
		method, ok := declared.(*ast.FuncDecl)
		if !ok || method.Name.Name != "MarshalVT" && method.Name.Name != "MarshalToVT" {
			continue
		}
		kept.WriteString(content[from:files.Position(method.Pos()).Offset])
		from = files.Position(method.End()).Offset
	}
	kept.WriteString(content[from:])
	return format.Source(kept.Bytes())
}
