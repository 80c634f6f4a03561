package daemon

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/conductord/conductord/conductor"
	"github.com/conductord/conductord/config"
)

// countClaims registers metrics of a conductor's claims, and counts them by its notices.
func countClaims(registry *prometheus.Registry) func(conductor.Notice) {
	held := promauto.With(registry).NewGauge(prometheus.GaugeOpts{Name: "conductord_conductor_jobs", Help: "Jobs that this node's conductor holds."})
	return func(n conductor.Notice) {
		switch n.Moment {
		case conductor.MomentClaimed:
			held.Inc()
		case conductor.MomentConsumed, conductor.MomentAbandoned, conductor.MomentTrashed, conductor.MomentClaimLost:
			held.Dec()
		}
	}
}

// registerSteps registers metrics of a conductor's running steps and its limits.
func registerSteps(registry *prometheus.Registry, c *conductor.Conductor, limits config.Conductor) {
	gauge := func(name, help string, value func() int) {
		promauto.With(registry).NewGaugeFunc(prometheus.GaugeOpts{Name: "conductord_conductor_" + name, Help: help}, func() float64 { return float64(value()) })
	}
	gauge("jobs_limit", "The setting conductor.max_jobs: maximum jobs that the conductor holds, without jobs that only wait for step workers.", func() int { return limits.MaxJobs })
	gauge("steps", "Steps that this node's conductor runs, without steps of step workers.", c.RunningSteps)
	gauge("steps_limit", "The setting conductor.steps: maximum steps that the conductor runs.", c.StepsLimit)
}
