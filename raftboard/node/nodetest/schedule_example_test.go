package nodetest_test

import (
	"context"
	"fmt"
	"log"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/jobs"
	"github.com/conductord/conductord/jobs/schedules"
	"github.com/conductord/conductord/raftboard/node/nodetest"
)

type email struct{ To, Subject string }

// A schedule in Go. The function gets the details of the posting from every slot.
func Example_schedule() {
	cluster, err := nodetest.Open(1)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = cluster.Close() }()
	client := cluster.Client
	ctx, stop := context.WithCancel(context.Background())

	newsletter := schedules.Schedule{
		Name: "newsletter", Rule: "30 2 * * *", Zone: "Europe/Berlin", Overlap: schedules.OverlapQueue,
		Posting: jobs.NewPlainPosting("email", email{To: "Ada", Subject: "News"}),
	}
	if _, err := client.SaveSchedule(ctx, newsletter); err != nil {
		log.Fatal(err)
	}

	if _, err := client.RunSchedule(ctx, schedules.Command{Ref: schedules.Ref{Name: newsletter.Name}}); err != nil {
		log.Fatal(err)
	}
	send := conductor.WithDetails(func(_ context.Context, job jobs.Job, mail email) error {
		fmt.Printf("%+v from %s, slot %t, store %s\n", mail, job.Schedule, !job.Slot.IsZero(), job.Store["schedule"])
		stop()
		return nil
	})
	fmt.Println(conductor.Run(ctx, conductor.Options{Client: client, Funcs: map[string]conductor.Func{"email": send}}))
	// Output:
	// {To:Ada Subject:News} from newsletter, slot true, store "newsletter"
	// <nil>
}
