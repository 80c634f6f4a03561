package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/conductord/conductord/flow"
	"github.com/conductord/conductord/flow/engine"
	"github.com/conductord/conductord/logbook"
)

// Prices are requested in parallel, each recorded separately, and then added up.
func ExampleRunLocal_map() {
	prices := map[string]int{"bread": 3, "milk": 2, "jam": 4}
	ask := func(_ context.Context, article string) (int, error) { return prices[article], nil }
	add := func(_ context.Context, sum, price int) (int, error) { return sum + price, nil }
	shop := flow.Linear("shop",
		flow.Map("ask", "articles", "prices", ask),
		flow.Reduce("add", "prices", "total", 0, add))

	store := logbook.Values{"articles": json.RawMessage(`["bread", "milk", "jam"]`)}
	result, err := engine.RunLocal(context.Background(), shop, store)
	fmt.Println(string(result.Values["prices"]), string(result.Values["total"]), string(result.Steps["ask-item[2]"]), err)
	// Output: [3,2,4] 9 4 <nil>
}

// A part of a flow is run once for each element of a list that a step finds.
func ExampleRunLocal_each() {
	type orders struct {
		Orders []string `json:"orders"`
	}
	type order struct {
		Order string `json:"order"`
	}
	type parcel struct {
		Parcel string `json:"parcel"`
	}
	type parcels struct {
		Parcels []string `json:"parcels"`
	}
	find := func(context.Context, struct{}) (orders, error) { return orders{[]string{"A", "B"}}, nil }
	pack := func(_ context.Context, in order) (parcel, error) { return parcel{"box of " + in.Order}, nil }
	send := func(_ context.Context, in parcel) (struct{}, error) { return struct{}{}, nil }
	bill := func(_ context.Context, in parcels) (int, error) { return len(in.Parcels), nil }

	root := flow.Linear("day", flow.Func("find", find),
		flow.Each("ship", "orders", "order", flow.Linear("one", flow.Func("pack", pack), flow.Func("send", send)), flow.Gather("parcel", "parcels")),
		flow.Func("bill", bill, flow.Provides("parcels_sent")))
	result, err := engine.RunLocal(context.Background(), root, nil)
	var sent int
	err = errors.Join(err, result.Decode("parcels_sent", &sent))
	fmt.Println(sent, string(result.Steps["pack[1]"]), err)
	// Output: 2 {"parcel":"box of B"} <nil>
}
