package examples_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

type stay struct {
	City string `json:"city"`
}

type room struct {
	Room string `json:"room"`
}

// book requires city, and provides room.
func book(_ context.Context, in stay) (room, error) {
	fmt.Println("books a room in", in.City)
	return room{"17"}, nil
}

// cancel undoes book. It gets the arguments and the result of book. The result is nil if
// book failed, or if the outcome of book is unknown.
func cancel(_ context.Context, in stay, out *room) error {
	if out != nil {
		fmt.Println("cancels room", out.Room, "in", in.City)
	}
	return nil
}

func pay(ctx context.Context, _ room) (struct{}, error) {
	fmt.Println("pays, attempt", flow.CallFrom(ctx).Attempt)
	return struct{}{}, errors.New("the bank does not answer")
}

// travel books a room and pays for it. After four failed payments, the room is cancelled.
func travel() *flow.Flow {
	return flow.Linear("travel",
		flow.FuncRevert("book", book, cancel),
		flow.Func("pay", pay, flow.Timeout(10*time.Second), flow.Retry(flow.Backoff{
			Attempts:       4,                     // including the first
			Delay:          10 * time.Millisecond, // before the second attempt
			BackoffPercent: 200,                   // doubles each further delay
			MaxDelay:       time.Minute,           // 5 min by default
			JitterPercent:  20,                    // a random share of the delay
		})))
}

func Example_goSteps() {
	result, err := engine.RunLocal(context.Background(), travel(), logbook.Values{"city": []byte(`"Oslo"`)})
	fmt.Println(result.State)
	fmt.Println(err)
	// Output:
	// books a room in Oslo
	// pays, attempt 1
	// pays, attempt 2
	// pays, attempt 3
	// pays, attempt 4
	// cancels room 17 in Oslo
	// reverted
	// flow "travel": reverted after a failure: step pay: the bank does not answer
}
