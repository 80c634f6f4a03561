package command_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	v1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/fsm/command"
	"github.com/conductord/conductord/logbook"
)

// withField appends an unknown field.
func withField(data []byte) []byte {
	data = protowire.AppendTag(slices.Clone(data), 5000, protowire.VarintType)
	return protowire.AppendVarint(data, 1)
}

// marshal is the message's encoding, outside an entry.
func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// newerPosting is a posting with a field that this program does not know.
func newerPosting(t testing.TB) *v1.Posting {
	t.Helper()
	p := &v1.Posting{}
	if err := proto.Unmarshal(withField(marshal(t, samplePosting())), p); err != nil {
		t.Fatal(err)
	}
	return p
}

func postOf(p ...*v1.Posting) *v1.Command {
	return &v1.Command{Kind: &v1.Command_Post{Post: &v1.PostCommand{Postings: p}}}
}

func TestDecodeEntryRefuses(t *testing.T) {
	good := encode(t, entryOf(samples()...))
	newerValue := samplePosting()
	newerValue.Store[0].Value.ProtoReflect().SetUnknown(withField(nil))
	for _, row := range []struct {
		name string
		data []byte
		want error
		says string
	}{
		{"nothing", nil, command.ErrCorrupt, "0 bytes"},
		{"one byte", []byte("C"), command.ErrCorrupt, "1 bytes"},
		{"another first byte", append([]byte{'D'}, good[1:]...), command.ErrCorrupt, "'C'"},
		{"a newer version", append([]byte{'C', 2}, good[2:]...), command.ErrUnknownVersion, "version 2, and this program supports versions up to 1"},
		{"version 0", append([]byte{'C', 0}, good[2:]...), command.ErrUnknownVersion, "version 0,"},
		{"cut short", good[:len(good)-1], command.ErrCorrupt, ""},
		{"a command without a kind", encode(t, entryOf(samples()[0], &v1.Command{})), command.ErrUnknownCommand, "command 2 of 2"},
		{"a command of another kind", encode(t, entryOf(newerCommand(t))), command.ErrUnknownCommand, "command 1 of 1"},
		{"a field of the entry", withField(good), command.ErrUnknownCommand, "conductord.v1.Entry"},
		{"a field of a posting", encode(t, entryOf(postOf(newerPosting(t)))), command.ErrUnknownCommand, "conductord.v1.Posting"},
		{"a field in a map", encode(t, entryOf(postOf(newerValue))), command.ErrUnknownCommand, "conductord.v1.Value"},
	} {
		entry, err := command.DecodeEntry(row.data)
		if entry != nil || !errors.Is(err, row.want) || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: got %v and %v, want %v saying %q", row.name, entry, err, row.want, row.says)
		}
	}
}

// newerCommand is the decoded form of a newer program's command.
func newerCommand(t testing.TB) *v1.Command {
	t.Helper()
	c := &v1.Command{}
	if err := proto.Unmarshal(withField(nil), c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEntryRoundTrip(t *testing.T) {
	for _, entry := range []*v1.Entry{{}, entryOf(), entryOf(samples()...)} {
		got, err := command.DecodeEntry(encode(t, entry))
		if err != nil || !proto.Equal(got, entry) {
			t.Errorf("%v became %v, %v", entry, got, err)
		}
	}
}

func TestEncodeEntryRefusesWhatIsNotText(t *testing.T) {
	bad := entryOf(&v1.Command{Kind: &v1.Command_BeginLeadership{BeginLeadership: &v1.BeginLeadershipCommand{Node: "\xff"}}})
	if data, err := command.EncodeEntry(bad); err == nil {
		t.Errorf("encoded as %x", data)
	}
}

// FuzzDecodeEntry: for any bytes, decoding returns an entry that survives encoding and
// decoding, or one of the three errors. No decoded command makes Check or a digest panic.
func FuzzDecodeEntry(f *testing.F) {
	for _, c := range samples() {
		f.Add(encode(f, entryOf(c)))
	}
	f.Add(encode(f, entryOf(postOf(newerPosting(f)))))
	f.Add([]byte{'C', 2})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		entry, err := command.DecodeEntry(data)
		if err != nil {
			if !errors.Is(err, command.ErrCorrupt) && !errors.Is(err, command.ErrUnknownCommand) &&
				!errors.Is(err, command.ErrUnknownVersion) {
				t.Fatalf("an error of no kind: %v", err)
			}
			return
		}
		encoded, err := command.EncodeEntry(entry)
		if err != nil {
			return // text that is not UTF-8, which no node writes into an entry
		}
		again, err := command.DecodeEntry(encoded)
		if err != nil || !bytes.Equal(encode(t, again), encoded) {
			t.Fatalf("%v was encoded and became %v, %v", entry, again, err)
		}
		for _, c := range entry.Commands {
			useCommand(t, c)
		}
	})
}

func useCommand(t *testing.T, c *v1.Command) {
	if command.Name(c) == "unknown" {
		t.Fatalf("a command without a name was decoded: %v", c)
	}
	err := command.Check(logbook.MaxLimits, c)
	if err != nil && !errors.Is(err, logbook.ErrInvalid) && !errors.Is(err, logbook.ErrLimit) {
		t.Fatalf("refused with an error of no kind: %v", err)
	}
	for _, p := range c.GetPost().GetPostings() {
		command.PostingDigest(nil, p)
	}
}

func BenchmarkDecodeEntry(b *testing.B) {
	data := encode(b, entryOf(postOf(samplePosting())))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := command.DecodeEntry(data); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	c := postOf(samplePosting())
	b.ReportAllocs()
	for b.Loop() {
		if err := command.Check(logbook.MaxLimits, c); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPostingDigest(b *testing.B) {
	p := samplePosting()
	var memory []byte
	b.ReportAllocs()
	for b.Loop() {
		_, memory = command.PostingDigest(memory, p)
	}
}
