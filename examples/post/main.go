// Command post gives the worker beside it something to do: it posts a job
// with the book of its flow, and waits for the end.
//
//	go run ./examples/post 127.0.0.1:7070
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/await"
	"github.com/conductord/conductord/logbook"
	"github.com/conductord/conductord/raftboard"
)

func main() {
	if err := post(); err != nil {
		log.Fatal(err)
	}
}

func post() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	cluster, err := raftboard.Dial(ctx, os.Args[1:]...)
	if err != nil {
		return err
	}
	defer cluster.Close()

	book := logbook.Book{ID: logbook.NewBookID(), Name: "greetings"}
	book.Flows = []logbook.FlowDetail{{
		ID: logbook.NewFlowID(), Book: book.ID, Name: "greet", Factory: logbook.Factory{Name: "greet"},
	}}
	posted, err := cluster.Post(ctx, jobs.Posting{
		Name: "greet the world", Book: &book, Store: logbook.Values{"name": json.RawMessage(`"world"`)},
	})
	if err != nil {
		return err
	}
	if posted[0].Err != nil {
		return posted[0].Err
	}
	result, err := await.Result(ctx, cluster, posted[0].Job.ID)
	if err != nil {
		return err
	}
	var text string
	if err := result.Decode("text", &text); err != nil {
		return err
	}
	fmt.Println(text)
	return nil
}
