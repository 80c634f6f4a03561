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
	job, err := cluster.Wait(ctx, posted[0].Job.ID)
	if err != nil {
		return err
	}
	fmt.Println(job.Name+":", job.State, job.Outcome)

	detail, err := cluster.FlowDetail(ctx, job.Flow)
	if err != nil {
		return err
	}
	for _, atom := range detail.Atoms {
		result, _ := atom.Result()
		fmt.Printf("  %-10s %s %s\n", atom.Name, atom.State, result)
	}
	return nil
}
