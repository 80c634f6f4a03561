package fsm

import (
	"bytes"
	"container/heap"

	bolt "go.etcd.io/bbolt"

	"github.com/conductord/conductord/jobs"
)

// maxGrantedBytes bounds what one request takes, as stored, so that its answer
// fits into one message: jobs that were claimed by an answer which cannot be
// sent would be held by somebody who does not know of them.
const maxGrantedBytes = 1 << 20

// firstClaimable reads the first jobs, in the one order of all the lanes that
// a request names: as many as are asked for and take maxGrantedBytes, but one
// of any size. Each lane is in that order already, so it is enough to look
// at the head of each, and at the next one where a head was taken: the cost
// follows the lanes and the answer, not the jobs that wait.
func (t *txn) firstClaimable(request jobs.ClaimRequest, most int) ([]*jobRecord, error) {
	var heads laneHeads
	for _, lane := range t.lanesOf(request) {
		head := &laneHead{lane: lane, cursor: t.cursor(tableClaimable)}
		if key, _ := head.cursor.Seek(lane); head.stand(key) {
			heads = append(heads, head)
		}
	}
	heap.Init(&heads)
	var found []*jobRecord
	for size := 0; len(heads) > 0 && len(found) < most; {
		sequence, err := sequenceAtEnd(heads[0].order)
		if err != nil {
			return nil, err
		}
		j, err := t.job(sequence)
		if err != nil {
			return nil, err
		}
		// A job that was given back within this very entry would get the
		// token that it had, and its last owner could write again.
		if j.Token != t.token() {
			if size += t.answerSize(j); size > maxGrantedBytes && len(found) > 0 {
				return found, nil
			}
			found = append(found, j)
		}
		if key, _ := heads[0].cursor.Next(); heads[0].stand(key) {
			heap.Fix(&heads, 0)
		} else {
			heap.Pop(&heads)
		}
	}
	return found, nil
}

// answerSize is about how long the answer to the claim of a job is, without the
// atoms of its flow: whoever answers bounds those.
func (v *view) answerSize(j *jobRecord) int {
	key := sequenceKey(j.Sequence)
	size := len(v.get(tableJob, key)) + len(v.get(tablePosting, key)) + len(v.get(tableEvidence, key))
	if !j.Flow.IsZero() {
		size += len(v.get(tableBook, j.Book.UUID[:])) + len(v.get(tableFlow, j.Flow.UUID[:])) + len(v.get(tableFlowBody, j.Flow.UUID[:]))
	}
	return size
}

// lanesOf are the keys of the lanes in which a request looks, each once. Where
// it names no kinds, they are found by leaping from lane to lane.
func (v *view) lanesOf(request jobs.ClaimRequest) [][]byte {
	var lanes [][]byte
	seen := make(map[string]bool)
	add := func(lane []byte) {
		if !seen[string(lane)] {
			seen[string(lane)] = true
			lanes = append(lanes, lane)
		}
	}
	boards := request.Boards
	if len(boards) == 0 {
		boards = []string{jobs.DefaultBoard}
	}
	for _, board := range boards {
		if len(board) > maxKeyName {
			continue // no job is on such a board
		}
		if len(request.Kinds) == 0 {
			for _, lane := range v.lanesOfBoard(boardKey(board)) {
				add(lane)
			}
		}
		for _, kind := range request.Kinds {
			if len(kind) <= maxKeyName {
				add(laneKey(Lane{board, kind}))
			}
		}
	}
	return lanes
}

// lanesOfBoard finds the lanes of a board in which a job waits.
func (v *view) lanesOfBoard(board []byte) [][]byte {
	var lanes [][]byte
	cursor := v.cursor(tableClaimable)
	key, _ := cursor.Seek(board)
	for bytes.HasPrefix(key, board) && len(key) > len(board) {
		end := len(board) + 1 + int(key[len(board)])
		if end > len(key) {
			return lanes
		}
		lane := bytes.Clone(key[:end])
		lanes = append(lanes, lane)
		key, _ = cursor.Seek(afterLane(lane))
	}
	return lanes
}

// afterLane is a key behind every key of the lane: a key goes on with four
// bytes of priority, and eight of sequence or zeros.
func afterLane(lane []byte) []byte {
	return append(bytes.Clone(lane), bytes.Repeat([]byte{0xff}, 4+sequenceSize)...)
}

// laneHead is the first job of a lane that has not been looked at.
type laneHead struct {
	lane   []byte
	order  []byte // inverted priority and sequence: by them the lanes are merged
	cursor *bolt.Cursor
}

// stand moves the head to a key; false if the lane is over.
func (h *laneHead) stand(key []byte) bool {
	if !bytes.HasPrefix(key, h.lane) {
		return false
	}
	h.order = key[len(h.lane):]
	return true
}

// laneHeads is a heap: the job that comes first is at 0.
type laneHeads []*laneHead

func (h laneHeads) Len() int           { return len(h) }
func (h laneHeads) Less(i, j int) bool { return bytes.Compare(h[i].order, h[j].order) < 0 }
func (h laneHeads) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *laneHeads) Push(x any)        { *h = append(*h, x.(*laneHead)) }
func (h *laneHeads) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
