package jobs

import "context"

// PostOne posts a single job; the refusal of its posting is an error. Without
// an id of its own the posting gets one here.
func PostOne(ctx context.Context, board Poster, posting Posting) (Job, error) {
	if posting.ID.IsZero() {
		posting.ID = NewJobID()
	}
	posted, err := board.Post(ctx, posting)
	if err != nil {
		return Job{ID: posting.ID}, err
	}
	return posted[0].Job, posted[0].Err
}
