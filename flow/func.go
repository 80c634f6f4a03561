package flow

import (
	"bytes"
	"context"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/conductord/conductord/logbook"
)

// Func makes a step from a function. The exported fields of the struct In are the values that the
// step requires, by their JSON names. Pointers, and fields marked omitempty or omitzero, are
// optional. If Out is a struct, its fields are the values that the step provides, unless options
// replace them; the option Provides names any other Out. Use struct{} for nothing. In can also be
// logbook.Values: then options name the required values.
func Func[In, Out any](name string, execute func(ctx context.Context, in In) (Out, error), options ...StepOption) *Step {
	task := &funcTask[In, Out]{execute: execute}
	derived, faults := derive[In, Out](name, execute == nil)
	return newStep(name, task, derived, faults, options)
}

// FuncRevert makes a step from a function and a function that reverts it. The revert gets the
// arguments of the execution and its result: nil if the execution failed, or if its progress is
// unknown. It is not called for a step that never ran because its arguments did not fit In.
func FuncRevert[In, Out any](name string, execute func(ctx context.Context, in In) (Out, error),
	revert func(ctx context.Context, in In, out *Out) error, options ...StepOption) *Step {
	task := &funcReverter[In, Out]{funcTask: funcTask[In, Out]{execute: execute}, revert: revert}
	derived, faults := derive[In, Out](name, execute == nil || revert == nil)
	return newStep(name, task, derived, faults, options)
}

// CallFrom returns the call in the context of a step; nil elsewhere.
func CallFrom(ctx context.Context) *Call {
	call, _ := ctx.Value(callKey{}).(*Call)
	return call
}

type callKey struct{}

// WithCall sets the call of a step's context. It is for code that makes calls.
func WithCall(ctx context.Context, call *Call) context.Context {
	if CallFrom(ctx) == call {
		return ctx
	}
	return context.WithValue(ctx, callKey{}, call)
}

type funcTask[In, Out any] struct {
	execute func(context.Context, In) (Out, error)
}

func (t *funcTask[In, Out]) Execute(ctx context.Context, call *Call) (any, error) {
	in, err := decode[In](call.Arguments)
	if err != nil {
		return nil, err
	}
	return t.execute(WithCall(ctx, call), in)
}

type funcReverter[In, Out any] struct {
	funcTask[In, Out]
	revert func(context.Context, In, *Out) error
}

func (t *funcReverter[In, Out]) Revert(ctx context.Context, call *Call) error {
	in, err := decode[In](call.Arguments)
	if err != nil && call.Failure != nil && call.Failure.Kind == logbook.FailureArgument {
		return nil // with these arguments it never executed: there is nothing to undo
	}
	if err != nil {
		return err
	}
	var out *Out
	if call.Result != nil {
		out = new(Out)
		if err := json.Unmarshal(call.Result, out); err != nil {
			return Permanent(Fail(logbook.FailureResult, fmt.Errorf("cannot read the result of the execution: %w", err)))
		}
	}
	return t.revert(WithCall(ctx, call), in, out)
}

// decode turns arguments into In. A failure is permanent, because the arguments stay the same.
func decode[In any](arguments logbook.Values) (In, error) {
	var in In
	if values, ok := any(&in).(*logbook.Values); ok {
		*values = arguments
		return in, nil
	}
	var object bytes.Buffer
	object.WriteByte('{')
	for name, value := range arguments {
		if object.Len() > 1 {
			object.WriteByte(',')
		}
		key, err := json.Marshal(name)
		if err != nil {
			return in, err
		}
		object.Write(key)
		object.WriteByte(':')
		object.Write(value)
	}
	object.WriteByte('}')
	if err := json.Unmarshal(object.Bytes(), &in); err != nil {
		return in, Permanent(Fail(logbook.FailureArgument, fmt.Errorf("cannot read the arguments: %w", err)))
	}
	return in, nil
}

// derive derives the step's arguments and provisions from its types.
func derive[In, Out any](name string, lacksFunction bool) (derivation, []error) {
	var d derivation
	var faults []error
	fault := func(text string) {
		faults = append(faults, fmt.Errorf("%w: step %q: %s", ErrInvalid, name, text))
	}
	if lacksFunction {
		fault("it has no function")
	}
	in, out := reflect.TypeFor[In](), reflect.TypeFor[Out]()
	switch {
	case in == reflect.TypeFor[logbook.Values]():
	case in.Kind() == reflect.Struct:
		fields := jsonFields(in, nil)
		if len(fields) == 0 && in.NumField() > 0 {
			fault(fmt.Sprintf("its input is %s, which has no exported field: export the fields, or use struct{} for no input", in))
		}
		for _, field := range fields {
			d.requires = append(d.requires, Argument{Name: field.name, Symbol: field.name, Optional: field.optional})
		}
	default:
		fault(fmt.Sprintf("its input is %s; it must be a struct or logbook.Values", in))
	}
	if out.Kind() == reflect.Struct && !marshalsItself(out) {
		for _, field := range jsonFields(out, nil) {
			d.provides = append(d.provides, Provision{Symbol: field.name, Field: field.name})
		}
	}
	return d, faults
}

type jsonField struct {
	name     string
	optional bool
}

// jsonFields lists the fields of a struct by their names in encoding/json. Fields of an embedded
// struct count as the outer struct's own, unless that has a field of the same name. above lists
// the enclosing types: a type that embeds itself through others adds nothing the second time.
func jsonFields(t reflect.Type, above []reflect.Type) []jsonField {
	above = append(above, t)
	var fields []jsonField
	own := make(map[string]bool)
	for i := range t.NumField() {
		if field, ok := directField(t.Field(i)); ok {
			own[field.name] = true
		}
	}
	for i := range t.NumField() {
		if field, ok := directField(t.Field(i)); ok {
			fields = append(fields, field)
		} else if inner := embedded(t.Field(i)); inner != nil && !slices.Contains(above, inner) {
			for _, field := range jsonFields(inner, above) {
				if !own[field.name] {
					fields = append(fields, field)
				}
			}
		}
	}
	return fields
}

// directField returns a field that appears in the JSON under its own name.
func directField(field reflect.StructField) (jsonField, bool) {
	tag := field.Tag.Get("json")
	name, options, _ := strings.Cut(tag, ",")
	if strings.ContainsAny(name, "\"'\\`") {
		name = "" // encoding/json does not take such names either
	}
	if !field.IsExported() || tag == "-" || name == "" && embedded(field) != nil {
		return jsonField{}, false
	}
	if name == "" {
		name = field.Name
	}
	optional := field.Type.Kind() == reflect.Pointer || hasOption(options, "omitempty") || hasOption(options, "omitzero")
	return jsonField{name: name, optional: optional}, true
}

// embedded returns the embedded struct whose fields count as fields of the outer struct.
func embedded(field reflect.StructField) reflect.Type {
	if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); !field.Anonymous || name != "" {
		return nil
	}
	return structOf(field.Type)
}

// structOf returns a struct type, or the struct type to which a pointer type
// points; nil for other types.
func structOf(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	return t
}

func hasOption(options, wanted string) bool {
	for option := range strings.SplitSeq(options, ",") {
		if option == wanted {
			return true
		}
	}
	return false
}

// marshalsItself reports whether a type defines its own JSON, as time.Time does. The fields of
// such a type are ignored.
func marshalsItself(t reflect.Type) bool {
	marshaler, text := reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()
	p := reflect.PointerTo(t)
	return p.Implements(marshaler) || p.Implements(text)
}
