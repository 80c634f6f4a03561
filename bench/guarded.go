package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/conductord/conductord/internal/measure"
	"github.com/conductord/conductord/jobs/access"
	"github.com/conductord/conductord/raftboard"
)

// guardedWorks are typical works.
const guardedWorks = "post-64,flow-64"

// guarded measures the price of TLS and access control: posts and flows on a cluster with both, against
// a cluster with neither, in turns.
func (b *bench) guarded(ctx context.Context) {
	dirs := []string{b.place(), b.place()}
	defer func() { _ = errors.Join(os.RemoveAll(dirs[0]), os.RemoveAll(dirs[1])) }()
	plain, err := startCluster(ctx, b.o.binary, dirs[0], b.o.LogStores[0])
	if err != nil {
		b.report.fail("the cluster without TLS: %v", err)
		return
	}
	defer plain.close()
	secure, err := startAttacked(ctx, b.o.binary, dirs[1])
	if err != nil {
		b.report.fail("the cluster with TLS: %v", err)
		return
	}
	defer secure.Close()
	token, err := secure.Admit(ctx, "bench", access.Grant{Role: access.Administrator, Boards: access.AllBoards})
	if err != nil {
		b.report.fail("the cluster with TLS: %v", err)
		return
	}
	dials := []func(context.Context) (*raftboard.Client, error){
		dialer(plain.processes.Endpoints()...),
		func(ctx context.Context) (*raftboard.Client, error) { return secure.Dial(ctx, token) },
	}
	chosen, _ := choose(guardedWorks)
	for _, w := range chosen.works("") {
		if err := b.guardedWork(ctx, w, dials); err != nil {
			b.report.fail("guarded: %s: %v", w.name, err)
			return
		}
	}
}

// guardedWork does one work on both sides. The sides take turns in starting first.
func (b *bench) guardedWork(ctx context.Context, w work, dials []func(context.Context) (*raftboard.Client, error)) error {
	load := w.load
	load.Warm, load.Window = b.o.Warm, b.o.Window
	var ratios []float64
	for number := range b.o.Pairs {
		var rates [2]float64
		for turn := range dials {
			side := (turn + number) % 2
			run, err := drive(ctx, w, load, dials[side])
			if err != nil {
				return err
			}
			rates[side] = run.PerSecond
		}
		progress("guarded, %s, pair %d of %d: %.0f/s, and %.0f/s without", w.name, number+1, b.o.Pairs, rates[1], rates[0])
		ratios = append(ratios, measure.Share(rates[1], rates[0]))
	}
	least := atLeast("", 0.9, nil)
	b.report.figure(fmt.Sprintf("%s with TLS and access control, against without", w.name), "of the rate", &least, ratios...)
	return nil
}

// drive does a work with a new client.
func drive(ctx context.Context, w work, load measure.Load, dial func(context.Context) (*raftboard.Client, error)) (measure.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, runPatience+load.Warm+load.Window)
	defer cancel()
	client, err := dial(ctx)
	if err != nil {
		return measure.Run{}, err
	}
	defer client.Close()
	ready, err := w.open(ctx, &place{client: client, dial: dial}, load)
	if err != nil {
		return measure.Run{}, err
	}
	defer ready.close()
	return measure.DriveTimed(ctx, load, ready.call, nil)
}
