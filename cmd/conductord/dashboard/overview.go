package dashboard

import (
	"context"

	v1 "github.com/conductord/conductord/api/conductord/v1"
)

// overviewData is what the overview shows.
type overviewData struct {
	Status *v1.StatusResponse
}

// loadOverview shows how the cluster is.
func loadOverview(ctx context.Context, v *visit) (view, error) {
	status, err := ask(ctx, v.api.cluster.Status, &v1.StatusRequest{})
	if err != nil {
		return view{}, err
	}
	return view{Title: "Overview", Command: "conductord cluster status", Data: overviewData{Status: status}}, nil
}
