package daemon

import (
	"context"
	"sync"
	"time"

	systemd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/hashicorp/go-hclog"
)

// tellSystemd reports to systemd that the daemon serves (Type=notify). From then on, it reports
// twice per WatchdogSec that the daemon is alive. If the daemon's raft no longer answers, it sends
// no report, and systemd restarts the daemon. Without systemd, it does nothing. stopping reports
// that the daemon is stopping.
func tellSystemd(alive func(context.Context) error, logger hclog.Logger) (stopping func()) {
	if told, err := systemd.SdNotify(false, systemd.SdNotifyReady); err != nil {
		logger.Warn("cannot notify systemd of the start", "error", err)
	} else if !told {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	switch within, err := systemd.SdWatchdogEnabled(false); {
	case err != nil:
		logger.Warn("cannot start the systemd watchdog", "error", err)
	case within > 0:
		watching.Go(func() { feedWatchdog(ctx, within/2, alive, logger) })
	}
	return func() {
		_, _ = systemd.SdNotify(false, systemd.SdNotifyStopping)
		cancel()
		watching.Wait()
	}
}

// feedWatchdog reports to systemd once per interval that the daemon is alive. It ends with ctx.
func feedWatchdog(ctx context.Context, interval time.Duration, alive func(context.Context) error, logger hclog.Logger) {
	ticks := time.NewTicker(interval)
	defer ticks.Stop()
	for {
		within, cancel := context.WithTimeout(ctx, interval)
		err := alive(within)
		cancel()
		if err == nil {
			_, err = systemd.SdNotify(false, systemd.SdNotifyWatchdog)
		}
		if err != nil && ctx.Err() == nil {
			logger.Warn("cannot notify the systemd watchdog", "error", err)
		}
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
	}
}
