package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/conductord/conductord/bench/bareraft"
	"github.com/conductord/conductord/cmd/local"
	"github.com/conductord/conductord/config"
	"github.com/conductord/conductord/internal/measure"
)

const floorMembers = 3

// floor is the other side: processes of bare raft.
type floor struct{ members []*member }

// member is one process. It gets one request at a time.
type member struct {
	command *exec.Cmd
	input   io.WriteCloser
	encoder *json.Encoder
	decoder *json.Decoder
}

// startFloor starts the processes and returns when one of them leads.
func startFloor(ctx context.Context, dir, store string) (*floor, error) {
	addresses, err := local.FreeAddresses(floorMembers)
	if err != nil {
		return nil, err
	}
	f := &floor{}
	for i, address := range addresses {
		options := floorOptions(address, addresses, filepath.Join(dir, fmt.Sprint("member", i+1)))
		options.LogStore = store
		m, err := startMember(ctx, options)
		if err != nil {
			return nil, errors.Join(err, f.close())
		}
		f.members = append(f.members, m)
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	if _, err := f.leader(ctx); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

// floorOptions has the timings of the servers' default configuration.
func floorOptions(address string, members []string, dir string) bareraft.Options {
	timings := config.Default().Raft
	return bareraft.Options{
		Address: address, Members: members, Dir: dir,
		Heartbeat: timings.Heartbeat, Election: timings.Election, LeaderLease: timings.LeaderLease,
		MaxAppendEntries: timings.MaxAppendEntries, SnapshotInterval: timings.SnapshotInterval,
		SnapshotThreshold: uint64(timings.SnapshotThreshold), TrailingLogs: uint64(timings.TrailingLogs),
	}
}

func startMember(ctx context.Context, options bareraft.Options) (*member, error) {
	if err := os.MkdirAll(options.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("cannot start bare raft: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("cannot start bare raft: %w", err)
	}
	m := &member{command: exec.CommandContext(ctx, self, floorMode)}
	m.command.Stderr = os.Stderr
	m.command.WaitDelay = time.Second
	input, err := m.command.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("cannot start bare raft: %w", err)
	}
	output, err := m.command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("cannot start bare raft: %w", err)
	}
	if err := m.command.Start(); err != nil {
		return nil, fmt.Errorf("cannot start bare raft: %w", err)
	}
	m.input, m.encoder, m.decoder = input, json.NewEncoder(input), json.NewDecoder(output)
	if err := m.encoder.Encode(options); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot start bare raft: %w", err), m.close())
	}
	return m, nil
}

// ask waits for the answer. When the context of the process's start ends, the process is
// killed and the wait ends.
func (m *member) ask(request bareraft.Request) (bareraft.Answer, error) {
	var answer bareraft.Answer
	if err := m.encoder.Encode(request); err != nil {
		return answer, fmt.Errorf("cannot ask a process of bare raft: %w", err)
	}
	if err := m.decoder.Decode(&answer); err != nil {
		return answer, fmt.Errorf("a process of bare raft does not answer: %w", err)
	}
	if answer.Error != "" {
		return answer, errors.New(answer.Error)
	}
	return answer, nil
}

// close ends the process by the end of its input, and waits for it.
func (m *member) close() error {
	const patience = 10 * time.Second
	killer := time.AfterFunc(patience, func() { _ = m.command.Process.Kill() })
	defer killer.Stop()
	_ = m.input.Close()
	if err := m.command.Wait(); err != nil {
		return fmt.Errorf("a process of bare raft ended: %w", err)
	}
	return nil
}

// leader finds the member that leads, and waits until there is one.
func (f *floor) leader(ctx context.Context) (*member, error) {
	const look = 20 * time.Millisecond
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	for {
		for _, m := range f.members {
			answer, err := m.ask(bareraft.Request{})
			if err != nil {
				return nil, err
			}
			if answer.Leading {
				return m, nil
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("bare raft has no leader: %w", ctx.Err())
		}
	}
}

// measure drives a load in the leader's process, and reads the usage of the other processes at
// the start and the end of the window.
func (f *floor) measure(ctx context.Context, load measure.Load, size int) (side, error) {
	ctx, cancel := context.WithTimeout(ctx, runPatience+load.Warm+load.Window)
	defer cancel()
	leader, err := f.leader(ctx)
	if err != nil {
		return side{}, err
	}
	// A process that does not answer in time is killed, which also ends the wait for its answer.
	kept := context.AfterFunc(ctx, func() { _ = leader.command.Process.Kill() })
	defer kept()
	var led bareraft.Answer
	done := make(chan error, 1)
	go func() { // ends with the answer, or with the process
		var err error
		led, err = leader.ask(bareraft.Request{Load: &load, Bytes: size})
		done <- err
	}()
	var usages [2][]measure.Usage
	for i, wait := range []time.Duration{load.Warm, load.Window} {
		if err == nil {
			usages[i], err = f.followers(ctx, leader, wait)
		}
	}
	if err := errors.Join(<-done, err); err != nil {
		return side{}, err
	}
	n := float64(led.Run.Operations)
	var spent []measure.Usage
	for i, usage := range usages[1] {
		spent = append(spent, usage.Since(usages[0][i]).Per(n))
	}
	calls := float64(load.PerCall)
	return side{Run: led.Run, CommandBytes: size, Cost: cost{
		Entries: measure.Share(float64(led.Entries), n), Commands: 1 / calls, Bytes: float64(size) / calls,
		Leader: led.Usage.Per(n), Followers: measure.MeanUsage(spent),
	}}, nil
}

// followers waits, and then reads the usage of all processes except the leader.
func (f *floor) followers(ctx context.Context, leader *member, wait time.Duration) ([]measure.Usage, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var usages []measure.Usage
	for _, m := range f.members {
		if m == leader {
			continue
		}
		answer, err := m.ask(bareraft.Request{})
		if err != nil {
			return nil, err
		}
		usages = append(usages, answer.Usage)
	}
	return usages, nil
}

func (f *floor) close() error {
	var errs []error
	for _, m := range f.members {
		errs = append(errs, m.close())
	}
	return errors.Join(errs...)
}
