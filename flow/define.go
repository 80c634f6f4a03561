package flow

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/conductord/conductord/logbook"
)

// Definition describes how the flow is built: its steps, and what each step waits for, requires
// and provides. It is stored with the flow, so that later code can find what has changed: see
// Compare. It costs O(steps + edges), once for a plan. The same flow has the same definition in
// every process, however far an each has grown. The bytes belong to the plan: do not write to
// them.
func (p *Plan) Definition() logbook.Definition { return p.Template().definition() }

func (p *Plan) define() logbook.Definition {
	steps := p.defined()
	hash := sha256.New()
	var text []byte
	for i := range steps {
		s := &steps[i]
		for _, part := range [...]string{s.Name, string(s.Kind), s.Version, s.Ports, s.Place} {
			text = append(binary.AppendUvarint(text, uint64(len(part))), part...)
		}
		if s.NoReturn {
			text = append(text, "no return"...)
		}
		hash.Write(text)
		text = text[:0]
	}
	definition := logbook.Definition{Hash: hex.EncodeToString(hash.Sum(nil))}
	if packed, err := logbook.PackSteps(steps); err == nil {
		definition.Packed = packed // otherwise only the hash shows changes
	}
	return definition
}

func (p *Plan) defined() []logbook.DefinedStep {
	names := make([]uint64, p.Len())
	for i, step := range p.steps {
		names[i] = fingerprint(step.name)
	}
	gates := p.gatePrints(names)
	steps := make([]logbook.DefinedStep, p.Len())
	for i, step := range p.steps {
		steps[i] = logbook.DefinedStep{Name: step.name, Version: step.version, Ports: step.ports(), Place: fingerprintText(p.awaited(i, names, gates)), Provides: p.provided[i]}
		steps[i].NoReturn, steps[i].Finally, steps[i].OnError, steps[i].Approves = step.noReturn, step.final, step.onError, step.approves()
		if kind := step.Kind(); kind != logbook.KindTask {
			steps[i].Kind = kind
		}
	}
	return steps
}

// gatePrints are the fingerprints of gates. Each covers the set of everything that the gate waits
// for, and the decisions at the gate. Gates are numbered in topological order, so the
// fingerprints of earlier gates are known.
func (p *Plan) gatePrints(names []uint64) []uint64 {
	gates := make([]uint64, p.Vertices()-p.Len())
	for i := range gates {
		gate := p.Len() + i
		gates[i] = p.awaited(gate, names, gates)
		if group, ok := p.GroupAt(gate); ok {
			gates[i] += fingerprint("enough", p.groups[group].Name, strconv.Itoa(p.groups[group].Enough))
		}
		choice, ok := p.ChoiceAt(gate)
		if !ok {
			continue
		}
		for _, decider := range p.choices[choice].Deciders {
			gates[i] += p.deciderPrint("decides", &decider)
			for j := range decider.Of {
				gates[i] += p.deciderPrint("decides otherwise, to depth "+decider.Depth.String(), &decider.Of[j])
			}
		}
	}
	return gates
}

func (p *Plan) deciderPrint(kind string, decider *LinkDecider) (sum uint64) {
	for _, from := range decider.From {
		for step := from.First; step < from.End; step++ {
			sum += fingerprint(kind, p.steps[step].name, decider.Name, decider.Depth.String())
		}
	}
	for _, wire := range decider.Values {
		sum += fingerprint(kind+" by", wire.Reference(), decider.Name, decider.Depth.String())
	}
	return sum
}

// awaited is the fingerprint of a vertex's predecessors. It is a sum, so it depends neither on
// the order of the vertices nor on the gates between them.
func (p *Plan) awaited(vertex int, names, gates []uint64) uint64 {
	sum := uint64(0)
	for _, before := range p.previous[vertex] {
		if v := int(before); v < len(names) {
			sum += names[v]
		} else {
			sum += gates[v-len(names)]
		}
	}
	return sum
}

// ports is the fingerprint of the step's inputs and outputs.
func (s *Step) ports() string {
	sum := uint64(0)
	for _, a := range s.requires {
		sum += fingerprint("requires", a.Name, a.Symbol, optional(a))
	}
	for _, a := range s.revertArguments() {
		sum += fingerprint("requires for its revert", a.Name, a.Symbol, optional(a))
	}
	for _, provision := range s.provides {
		sum += fingerprint("provides", provision.Symbol, provision.Field)
	}
	for name, value := range s.injected {
		sum += fingerprint("injects", name, string(value))
	}
	if s.opens != nil {
		sum += s.opens.fingerprint()
	}
	if s.atMostOnce {
		sum += fingerprint("at most once")
	}
	if s.final {
		sum += fingerprint("finally")
	}
	if s.onError {
		sum += fingerprint("on_error")
	}
	if s.again != nil {
		sum += fingerprint("continues")
	}
	if s.approves() {
		sum += fingerprint("approves")
	}
	if s.ignoresFailure {
		sum += fingerprint("ignores its failure", string(s.defaultResult))
	}
	return fingerprintText(sum)
}

func optional(a Argument) string {
	if a.Optional {
		return "optional"
	}
	return ""
}

// fingerprint is FNV-1a with the final mix of splitmix64. With the mix, sums of fingerprints
// distinguish sets; sums of plain FNV do not. It need not withstand attacks: nobody gains by
// making two steps look alike.
func fingerprint(parts ...string) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for _, part := range parts {
		for i := range len(part) {
			h = (h ^ uint64(part[i])) * prime
		}
		h = (h ^ 0xff) * prime // a byte that UTF-8 does not have ends each part
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

// fingerprintBytes is the stored length of a fingerprint. Two versions of a step look the same
// once in 2^48, and the steps of the longest flow still fit into one value.
const fingerprintBytes = 6

func fingerprintText(print uint64) string {
	if print == 0 {
		return ""
	}
	var bytes [8]byte
	var text [8]byte // as long as the bytes that are kept are in base64
	binary.BigEndian.PutUint64(bytes[:], print)
	base64.RawURLEncoding.Encode(text[:], bytes[:fingerprintBytes])
	return string(text[:])
}

// Change is how a step has changed.
type Change string

// The changes.
const (
	ChangeAdded   Change = "added"
	ChangeRemoved Change = "removed"
	ChangeKind    Change = "kind"
	ChangeVersion Change = "version"
	ChangePorts   Change = "ports" // it requires, provides or injects other values, or AtMostOnce was added or removed
	ChangeMoved   Change = "moved" // it waits for other steps, or has other deciders before it
)

// Difference is how one step of a flow has changed.
type Difference struct {
	Step   string
	Change Change
	Was    string // old kind or version, for these changes; or the kind of a removed step
	Is     string
}

// String is the difference in one sentence, without a full stop.
func (d Difference) String() string {
	switch d.Change {
	case ChangeAdded:
		return fmt.Sprintf("%s %q is new", d.Is, d.Step)
	case ChangeRemoved:
		return fmt.Sprintf("%s %q is gone", d.Was, d.Step)
	case ChangeKind:
		return fmt.Sprintf("%q is %s, and was %s", d.Step, withArticle(d.Is), withArticle(d.Was))
	case ChangeVersion:
		return fmt.Sprintf("step %q has %s, and had %s", d.Step, versionText(d.Is), versionText(d.Was))
	case ChangePorts:
		return fmt.Sprintf("step %q requires, provides or injects something else", d.Step)
	}
	return fmt.Sprintf("step %q waits for other steps", d.Step)
}

func withArticle(kind string) string {
	if kind == string(logbook.KindEach) {
		return "an " + kind
	}
	return "a " + kind
}

func versionText(version string) string {
	if version == "" {
		return "no version"
	}
	return fmt.Sprintf("version %q", version)
}

// Compare returns the changes from one definition to another: first the changes of the
// steps in current, in their order, then the removed steps. If a step's kind has changed,
// its other changes are left out.
func Compare(old, current []logbook.DefinedStep) []Difference {
	before := make(map[string]*logbook.DefinedStep, len(old))
	for i := range old {
		before[old[i].Name] = &old[i]
	}
	var differences []Difference
	for i := range current {
		is := &current[i]
		was, ok := before[is.Name]
		if !ok {
			differences = append(differences, Difference{Step: is.Name, Change: ChangeAdded, Is: stepKind(is)})
			continue
		}
		delete(before, is.Name)
		differences = append(differences, changes(was, is)...)
	}
	for i := range old {
		if _, gone := before[old[i].Name]; gone {
			differences = append(differences, Difference{Step: old[i].Name, Change: ChangeRemoved, Was: stepKind(&old[i])})
		}
	}
	return differences
}

func changes(was, is *logbook.DefinedStep) []Difference {
	if stepKind(was) != stepKind(is) {
		return []Difference{{Step: is.Name, Change: ChangeKind, Was: stepKind(was), Is: stepKind(is)}}
	}
	var differences []Difference
	if was.Version != is.Version {
		differences = append(differences, Difference{Step: is.Name, Change: ChangeVersion, Was: was.Version, Is: is.Version})
	}
	if was.Ports != is.Ports {
		differences = append(differences, Difference{Step: is.Name, Change: ChangePorts})
	}
	if was.Place != is.Place {
		differences = append(differences, Difference{Step: is.Name, Change: ChangeMoved})
	}
	return differences
}

// stepKind is the kind in words; a task is called a step.
func stepKind(step *logbook.DefinedStep) string {
	if step.Kind == "" || step.Kind == logbook.KindTask {
		return "step"
	}
	return string(step.Kind)
}
