package measure

import (
	"fmt"
	"io"
	"maps"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Counters are the values of metrics at one moment. A counter's key is its name, or
// "name{value}" if it has one label. Histograms and summaries have the keys "name_sum" and
// "name_count".
type Counters map[string]float64

// ReadCounters reads the metrics that a node exposes as text. Metrics with
// more than one label, and other kinds, are left out.
func ReadCounters(from io.Reader) (Counters, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(from)
	if err != nil {
		return nil, fmt.Errorf("cannot read metrics: %w", err)
	}
	counters := Counters{}
	for name, family := range families {
		for _, metric := range family.GetMetric() {
			key := name
			switch labels := metric.GetLabel(); len(labels) {
			case 0:
			case 1:
				key = Labelled(name, labels[0].GetValue())
			default:
				continue
			}
			counters.note(key, family.GetType(), metric)
		}
	}
	return counters, nil
}

func (c Counters) note(key string, kind dto.MetricType, metric *dto.Metric) {
	switch kind {
	case dto.MetricType_COUNTER:
		c[key] = metric.GetCounter().GetValue()
	case dto.MetricType_HISTOGRAM:
		c[key+"_sum"] = metric.GetHistogram().GetSampleSum()
		c[key+"_count"] = float64(metric.GetHistogram().GetSampleCount())
	case dto.MetricType_SUMMARY:
		c[key+"_sum"] = metric.GetSummary().GetSampleSum()
		c[key+"_count"] = float64(metric.GetSummary().GetSampleCount())
	}
}

// Labelled is the key of a counter with one label.
func Labelled(name, value string) string { return name + "{" + value + "}" }

// Add sums the counters of several nodes.
func (c Counters) Add(other Counters) {
	for key, value := range other {
		c[key] += value
	}
}

// Since returns the growth of each counter, without counters that have not grown.
func (c Counters) Since(before Counters) Counters {
	grown := maps.Clone(c)
	for key := range grown {
		if grown[key] -= before[key]; grown[key] <= 0 {
			delete(grown, key)
		}
	}
	return grown
}
