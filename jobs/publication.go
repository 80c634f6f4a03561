package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/conductord/conductord/internal/duration"
	"github.com/conductord/conductord/logbook"
)

// The limits of publications.
const (
	// MaxPublishedWaits limits the waits that one publication reaches, because one log entry changes all of them.
	MaxPublishedWaits = 1_000
	// MaxPublishedBytes limits the data of one publication, times its waits: the entry writes a copy for each wait.
	MaxPublishedBytes = 8 << 20
	// MaxKept limits the kept publications of a board. Publishers that are further ahead of the waits need a queue.
	MaxKept = 1_000
	// MaxKeptBytes limits the size of the kept publications of a board.
	MaxKeptBytes = 8 << 20
	// MaxPublicationIDs is the number of a board's latest publications whose repeats the board recognises.
	MaxPublicationIDs = 10_000
	// MaxKeep is the longest time for which a board keeps a publication: the longest wait.
	MaxKeep = logbook.MaxWait
)

// PublishTo selects the waits that a publication reaches.
type PublishTo string

// The selections.
const (
	PublishToOne PublishTo = "one" // the oldest wait
	PublishToAll PublishTo = "all" // every wait, at most MaxPublishedWaits
)

// Publication is a signal to steps that wait for a topic and a key on a board.
type Publication struct {
	Board, Topic, Key string // an empty Board is DefaultBoard
	To                PublishTo
	// Keep is the time for which the board keeps the publication if no step waits for it; 0: none.
	// Only for PublishToOne.
	Keep time.Duration
	// Signal has the ID, the data, the rejection and the sender. Its Name is the Topic.
	Signal logbook.Signal
}

// PublishReceipt is the durable answer to a publication: SignalTaken, SignalKept or SignalRepeated.
type PublishReceipt struct {
	Answer SignalAnswer
	First  SignalAnswer // only for SignalRepeated: the first answer
	Waits  uint32       // number of waits that took the publication in its log entry
}

// Publisher publishes to topics.
type Publisher interface {
	// Publish gives a signal to steps that wait for a topic and a key on a board. Their jobs continue in the same log
	// entry. Publish ignores steps of finished jobs. A kept publication goes to the next wait that starts for the topic
	// and the key. An empty To is PublishToOne.
	//
	// Without an ID, the client draws one. A repeat of the same topic, key and ID changes nothing while the publication
	// is among the latest MaxPublicationIDs of the board, and the answer is SignalRepeated.
	//
	// ErrNobodyWaits if no step waits, and Keep is 0: nothing happened. ErrPublicationsFull at MaxKept and MaxKeptBytes.
	// ErrLimit if more than MaxPublishedWaits wait, or over MaxPublishedBytes. ErrNotFound if there is no such board.
	// ErrInvalid or ErrLimit for a publication that CheckPublication refuses.
	Publish(ctx context.Context, publication Publication) (PublishReceipt, error)
}

// CheckPublication checks a publication before it is written.
func CheckPublication(l logbook.Limits, p *Publication) error {
	if err := CheckOptionalName(l, "publication board", p.Board); err != nil {
		return err
	}
	if err := l.CheckName("publication topic", p.Topic); err != nil {
		return err
	}
	if err := l.CheckName("publication key", p.Key); err != nil {
		return err
	}
	switch {
	case p.To != PublishToOne && p.To != PublishToAll:
		return &logbook.InvalidError{Field: "publication to", Reason: fmt.Sprintf("%.40q; write one or all", p.To)}
	case p.Keep < 0 || p.Keep > MaxKeep:
		return &logbook.InvalidError{Field: "publication keep", Reason: fmt.Sprintf("%s; it must be at least 0 and at most %s (400 days)", duration.Text(p.Keep), duration.Text(MaxKeep))}
	case p.Keep > 0 && p.To == PublishToAll:
		return &logbook.InvalidError{Field: "publication keep", Reason: "set together with to = all; a board keeps a publication only for one wait"}
	}
	return l.CheckSignal(&p.Signal)
}
