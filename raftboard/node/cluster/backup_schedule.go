package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/protobuf/types/known/timestamppb"

	conductordv1 "github.com/conductord/conductord/api/conductord/v1"
	"github.com/conductord/conductord/internal/boottime"
	"github.com/conductord/conductord/raftboard/node/backup"
	"github.com/conductord/conductord/raftboard/node/clock"
)

// Backups is the schedule of a node's own backups.
type Backups struct {
	Directory string        // an existing directory outside the data directory; empty: no backups
	Interval  time.Duration // between two backups; 0: 24 h
	Keep      int           // number of its own backups to keep; 0: 7
}

// WithDefaults replaces zeros.
func (b Backups) WithDefaults() Backups {
	b.Interval, b.Keep = cmp.Or(b.Interval, 24*time.Hour), cmp.Or(b.Keep, 7)
	return b
}

// Validate refuses a place that would be lost with the data directory.
func (b Backups) Validate(dataDir string) error {
	if b.Directory == "" {
		return nil
	}
	if !filepath.IsAbs(b.Directory) {
		return fmt.Errorf("backup directory %q is not an absolute path", b.Directory)
	}
	within, err := filepath.Rel(dataDir, b.Directory)
	if err == nil && within != ".." && !strings.HasPrefix(within, ".."+string(filepath.Separator)) {
		return fmt.Errorf("backup directory %s is within the data directory: a lost data directory would include the backups", b.Directory)
	}
	return nil
}

const (
	backupTime   = "20060102T150405Z" // in file names
	backupSuffix = ".tar"
	// backupLooks is the number of checks per interval whether a backup is due, which also retry a
	// failed backup. Checks are at least a second and at most a minute apart.
	backupLooks = 20
)

// backupSchedule makes backups of this node's state. The names of the files contain the cluster's
// time of each backup, so a restarted node continues its schedule.
type backupSchedule struct {
	Backups
	prefix string // of this node's files
	now    func() time.Time
	ready  func() error
	write  func(ctx context.Context, header http.Header, to io.Writer) error
	logger hclog.Logger

	started time.Time // of boottime

	mu   sync.Mutex
	read map[string]readBackup // by path: files that were read since the start; guarded by mu
}

// readBackup is the result of reading a backup to its end.
type readBackup struct {
	index uint64
	fault string // empty: the file is complete
}

// Run makes backups, if that is configured, until the context ends.
func (s *backupSchedule) Run(ctx context.Context) {
	if s.Directory == "" {
		return
	}
	for range clock.Every(ctx, min(max(s.Interval/backupLooks, time.Second), time.Minute)) {
		if err := s.look(ctx); err != nil && ctx.Err() == nil {
			s.logger.Error("cannot make a scheduled backup", "directory", s.Directory, "error", err)
		}
	}
}

// look makes a backup if one is due, and removes the oldest backups above the limit.
func (s *backupSchedule) look(ctx context.Context) error {
	if s.ready() != nil {
		return nil // the node knows neither the time nor the latest jobs
	}
	made, err := s.made()
	if err != nil {
		return err
	}
	s.readOne(made)
	now := s.now()
	if len(made) > 0 && now.Sub(made[0].at) < s.Interval {
		return nil
	}
	if err := s.removeRemains(); err != nil {
		return err
	}
	path := filepath.Join(s.Directory, s.prefix+now.UTC().Format(backupTime)+backupSuffix)
	if err := backup.WriteFile(path, func(to io.Writer) error { return s.write(ctx, http.Header{}, to) }); err != nil {
		return err
	}
	s.logger.Info("scheduled backup made", "file", path)
	s.readOne(append([]madeBackup{{path, now}}, made...))
	for _, old := range made[min(len(made), s.Keep-1):] {
		if err := os.Remove(old.path); err != nil {
			return fmt.Errorf("the backup was created, but an older backup cannot be removed: %w", err)
		}
	}
	return nil
}

// madeBackup is a backup in the directory.
type madeBackup struct {
	path string
	at   time.Time
}

// made lists this node's backups, the newest first.
func (s *backupSchedule) made() ([]madeBackup, error) {
	files, err := os.ReadDir(s.Directory)
	if err != nil {
		return nil, err
	}
	var made []madeBackup
	for _, file := range files {
		name, is := strings.CutPrefix(file.Name(), s.prefix)
		name, ends := strings.CutSuffix(name, backupSuffix)
		if at, err := time.Parse(backupTime, name); is && ends && err == nil {
			made = append(made, madeBackup{filepath.Join(s.Directory, file.Name()), at})
		}
	}
	slices.SortFunc(made, func(a, b madeBackup) int { return cmp.Compare(b.at.UnixNano(), a.at.UnixNano()) })
	return made, nil
}

// readOne reads the newest unread backup to its end. It reads one file per call, so many files do
// not delay a start. It forgets backups that are no longer listed.
func (s *backupSchedule) readOne(made []madeBackup) {
	path, found := s.unread(made)
	if !found {
		return
	}
	manifest, err := readBackupFile(path)
	result := readBackup{index: manifest.Index}
	if err != nil {
		result.fault = err.Error()
		s.logger.Error("scheduled backup is damaged", "file", path, "error", err, "advice", "make another backup")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.read[path] = result
}

func (s *backupSchedule) unread(made []madeBackup) (path string, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.read
	s.read = make(map[string]readBackup, len(made))
	for _, m := range made {
		if result, known := before[m.path]; known {
			s.read[m.path] = result
		} else if !found {
			path, found = m.path, true
		}
	}
	return path, found
}

func readBackupFile(path string) (backup.Manifest, error) {
	file, err := os.Open(path)
	if err != nil {
		return backup.Manifest{}, err
	}
	defer file.Close()
	return backup.Read(file, func(backup.Manifest, io.Reader) error { return nil })
}

// list is this node's backups for its status.
func (s *backupSchedule) list() (all []*conductordv1.ScheduledBackup) {
	if s.Directory == "" {
		return nil
	}
	made, err := s.made()
	if err != nil {
		return nil // the age and the log show this
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range made {
		read, known := s.read[m.path]
		one := &conductordv1.ScheduledBackup{
			File: filepath.Base(m.path), MadeAt: timestamppb.New(m.at), Index: read.index, Verified: known && read.fault == "", Fault: read.fault,
		}
		if info, err := os.Stat(m.path); err == nil {
			one.Bytes = uint64(info.Size())
		}
		all = append(all, one)
	}
	return all
}

// removeRemains removes the unfinished file of a node that ended during a backup.
func (s *backupSchedule) removeRemains() error {
	remains, err := filepath.Glob(filepath.Join(s.Directory, s.prefix+"*"+backupSuffix+".*.tmp"))
	for _, path := range remains {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// Age returns the seconds since the newest backup; 0 without a schedule of backups.
func (s *backupSchedule) Age() float64 {
	if s.Directory == "" {
		return 0
	}
	if made, err := s.made(); err == nil && len(made) > 0 {
		return max(s.now().Sub(made[0].at), 0).Seconds()
	}
	return boottime.Since(s.started).Seconds()
}
