package jobstest

import (
	"fmt"
	"strings"

	"github.com/conductord/conductord/jobs"
)

var labelRows = []row{
	{"a job with labels goes to a caller that offers all of them", labelsWanted},
	{"labels keep the order", labelsKeepTheOrder},
	{"a waiting caller with the labels is woken before callers without", labelsWake},
	{"labels have bounds", boundsOfLabels},
}

// labelled makes a posting that requires labels.
func (k *kit) labelled(name string, labels ...string) jobs.Posting {
	posting := k.posting(name)
	posting.Labels = labels
	return posting
}

// offering requests jobs of the row's board: of its kind, or of any.
func (k *kit) offering(session jobs.SessionID, kinds bool, labels ...string) jobs.ClaimRequest {
	request := k.request(session)
	request.Labels, request.Max = labels, 10
	if kinds {
		request.Kinds = []string{k.kind}
	}
	return request
}

func labelsWanted(k *kit) {
	session := k.session("worker")
	for _, kinds := range []bool{true, false} {
		k.post(k.labelled("plain"), k.labelled("gpu", "gpu"), k.labelled("both", "zone a", "gpu"), k.labelled("zone", "zone b"))
		for _, row := range []struct {
			offered []string
			want    []string
		}{
			{nil, []string{"plain"}},
			{[]string{"zone a"}, []string{}},
			{[]string{"gpu", "other"}, []string{"gpu"}},
			{[]string{"gpu", "zone"}, []string{}},
			{[]string{"zone a", "zone b", "gpu"}, []string{"both", "zone"}},
		} {
			k.same(fmt.Sprint("jobs for who offers ", row.offered, ", kinds named: ", kinds),
				names(k.next(k.offering(session, kinds, row.offered...))), row.want)
		}
	}
	job := k.post(k.labelled("by name", "gpu"))[0]
	if claimed := k.claim(session, job.ID); len(claimed.Job.Labels) != 1 || claimed.Job.Labels[0] != "gpu" {
		k.Errorf("claimed %s", render(claimed.Job))
	}
}

func labelsKeepTheOrder(k *kit) {
	session := k.session("worker")
	high := k.labelled("high", "gpu")
	high.Priority = jobs.High
	front := k.labelled("front", "gpu", "big")
	front.Front = true
	k.post(k.posting("a"), k.labelled("b", "gpu"), k.posting("c"), k.labelled("d", "big"), high, front)
	k.same("order", names(k.next(k.offering(session, true, "big", "gpu"))), []string{"high", "front", "a", "b", "c", "d"})
}

func labelsWake(k *kit) {
	without, with := k.session("without"), k.session("with")
	idle := k.asleep(without)
	k.linger(without)
	answered := make(chan []jobs.Claimed, 1)
	go func() {
		request := k.offering(with, false, "gpu")
		request.Wait = parked
		claimed, err := k.Board.ClaimNext(k.ctx, request)
		k.wants("ClaimNext", err, nil)
		answered <- claimed
	}()
	k.linger(with)
	k.post(k.labelled("for the second", "gpu"))
	k.same("jobs for who offers the label", names(answer(k, "ClaimNext", answered)), []string{"for the second"})
	k.post(k.posting("for the first"))
	if got := k.wakes("ClaimNext", idle); got.Job.Name != "for the first" {
		k.Errorf("got %s", render(got.Job))
	}
}

func boundsOfLabels(k *kit) {
	session := k.session("worker")
	many := func(n, size int) (labels []string) {
		for i := range n {
			labels = append(labels, fmt.Sprintf("%0*d", size, i))
		}
		return labels
	}
	k.post(k.labelled("many", many(jobs.MaxLabels, 4)...), k.labelled("long", strings.Repeat("x", jobs.MaxLabelBytes)))
	k.wantsLimit("too many labels", k.verdict(k.labelled("more", many(jobs.MaxLabels+1, 4)...)), jobs.MaxLabels, jobs.MaxLabels+1)
	// Eight labels need seven separator bytes.
	k.wantsLimit("labels too long", k.verdict(k.labelled("longer", many(8, 32)...)), jobs.MaxLabelBytes-7, 8*32)
	k.wantsInvalid("a label that occurs twice", k.verdict(k.labelled("twice", "a", "a")))
	claimWith := func(labels []string) error {
		_, err := k.Board.ClaimNext(k.ctx, k.offering(session, true, labels...))
		return err
	}
	k.wants("as many labels as can be offered", claimWith(many(jobs.MaxOffered, 4)), nil)
	k.wantsLimit("too many labels offered", claimWith(many(jobs.MaxOffered+1, 4)), jobs.MaxOffered, jobs.MaxOffered+1)
	k.wantsLimit("labels offered too long", claimWith(many(jobs.MaxOffered, 65)), jobs.MaxOfferedBytes, jobs.MaxOfferedBytes+1)
	register := func(labels []string) error {
		return k.Board.Register(k.ctx, session, jobs.Entity{Kind: k.kind, Name: "worker", Labels: labels})
	}
	k.wants("an entity with labels", register([]string{"gpu", "zone a"}), nil)
	k.wantsLimit("an entity with too many labels", register(many(jobs.MaxOffered+1, 4)), jobs.MaxOffered, jobs.MaxOffered+1)
	entities, err := k.Board.Entities(k.ctx, k.kind)
	if err != nil || len(entities) != 1 || len(entities[0].Labels) != 2 {
		k.Errorf("entities %s, %v", render(entities), err)
	}
}
