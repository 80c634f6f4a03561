package flow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/conductord/conductord/logbook"
)

// Send is a signal that a step sends to a job when it succeeds: to the job with the id Job, or to the unfinished job of
// Board with Key. An empty Board is the board of the step's own job.
//
// The texts can contain arguments of the step in braces, as in "{order.id}". A text in Data that is one reference, such
// as "{amount}", becomes the JSON value of the argument.
type Send struct {
	Job, Board, Key string
	Name            string          // of the signal
	Data            json.RawMessage // nil: null
}

// Sends makes a step send signals to other jobs when it succeeds. The cluster sends them in the log entry that records
// the success: each signal is sent once, and none is sent by a step that fails. If a signal reaches no job, the step
// succeeds; the record of the attempt contains the answer, and the board writes an event of kind jobs.EventUnsent.
func Sends(sends ...Send) StepOption {
	return stepOption(func(s *Step) { s.sends = append(s.sends, sends...) })
}

// Signal sends a signal to a job when this execution succeeds: see Sends. Call it before Execute returns.
func (c *Call) Signal(job string, signal logbook.Signal) {
	c.sends = append(c.sends, logbook.Sending{Job: job, Signal: &signal})
}

// SignalKey sends a signal to the unfinished job of a board that has a key, like Signal. An empty board is the board of
// the call's own job.
func (c *Call) SignalKey(board, key string, signal logbook.Signal) {
	c.sends = append(c.sends, logbook.Sending{Board: board, Key: key, Signal: &signal})
}

// Sent returns the signals that the call sends by Signal and SignalKey. Like KeepSent, it is for code that runs steps in
// another process than their flow.
func (c *Call) Sent() []logbook.Sending { return c.sends }

// KeepSent sets the signals that the execution has sent in another process.
func (c *Call) KeepSent(sends []logbook.Sending) { c.sends = sends }

// TakeSends returns the signals of an execution that has succeeded: of the step's Sends, and of the call. A signal
// without an id gets a unique id for each attempt. TakeSends is for code that runs steps.
func (s *Step) TakeSends(call *Call) ([]logbook.Sending, error) {
	var sends []logbook.Sending
	for i := range s.sends {
		sent, err := s.fillSend(&s.sends[i], call.Arguments)
		if err != nil {
			return nil, fmt.Errorf("cannot make its signal %q: %w", s.sends[i].Name, err)
		}
		sends = append(sends, sent)
	}
	sends = append(sends, call.sends...)
	logbook.NameSends(call.Flow, fmt.Sprintf("%s/%d", call.Step, call.Attempt), sends)
	for i := range sends {
		if sends[i].Signal.By == "" && call.Job != "" {
			sends[i].Signal.By = "job " + call.Job
		}
	}
	return sends, nil
}

// fillSend inserts the values of arguments.
func (s *Step) fillSend(send *Send, arguments logbook.Values) (sent logbook.Sending, err error) {
	value := func(argument string) (json.RawMessage, bool) { found, ok := arguments[argument]; return found, ok }
	fill := func(text string) string {
		if err != nil || !strings.Contains(text, "{") {
			return text
		}
		text, err = fillTemplate(text, s.hasArgument, value, func(string) bool { return false })
		return text
	}
	sent = logbook.Sending{Job: fill(send.Job), Board: fill(send.Board), Key: fill(send.Key), Signal: &logbook.Signal{Name: fill(send.Name)}}
	if err != nil || len(send.Data) == 0 || !bytes.Contains(send.Data, []byte("{")) {
		sent.Signal.Data = send.Data
		return sent, err
	}
	tree, err := logbook.DecodeJSON(send.Data)
	if err != nil {
		return sent, err
	}
	if tree, err = s.fillTree(tree, arguments, fill); err != nil {
		return sent, err
	}
	sent.Signal.Data, err = logbook.EncodeJSON(tree)
	return sent, err
}

// fillTree inserts the values of arguments into the texts of a JSON value.
func (s *Step) fillTree(tree any, arguments logbook.Values, fill func(string) string) (any, error) {
	var err error
	switch node := tree.(type) {
	case string:
		if reference, whole := wholeReference(node); whole {
			name, path := CutPath(reference, s.hasArgument)
			inner, innerErr := Inner(name, arguments[name], path)
			if innerErr != nil {
				return nil, innerErr
			}
			return logbook.DecodeJSON(inner)
		}
		return fill(node), nil
	case []any:
		for i := range node {
			if node[i], err = s.fillTree(node[i], arguments, fill); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for key := range node {
			if node[key], err = s.fillTree(node[key], arguments, fill); err != nil {
				return nil, err
			}
		}
	}
	return tree, nil
}

// wholeReference returns the reference of a text that is one pair of braces.
func wholeReference(text string) (string, bool) {
	inner, found := strings.CutPrefix(text, "{")
	inner, closed := strings.CutSuffix(inner, "}")
	return inner, found && closed && !strings.ContainsAny(inner, "{}")
}

// checkSends checks the signals that the step sends.
func (s *Step) checkSends() {
	if len(s.sends) == 0 {
		return
	}
	if s.task == nil || s.wait != nil {
		s.fault("it sends signals, and runs no task")
	}
	if n := len(s.sends); n > logbook.MaxSends {
		s.fault("it sends %d signals; the limit is %d", n, logbook.MaxSends)
	}
	for i := range s.sends {
		send := &s.sends[i]
		if (send.Job == "") == (send.Key == "") || send.Job != "" && send.Board != "" {
			s.fault("its signal %q must name a job, or a key and optionally a board", send.Name)
		}
		if send.Name == "" {
			s.fault("it sends a signal without a name")
		}
		for what, text := range map[string]string{"job": send.Job, "board": send.Board, "key": send.Key, "signal name": send.Name} {
			s.checkTemplate(what, text)
		}
		if err := logbook.MaxLimits.CheckValue("signal data", send.Data); err != nil {
			s.fault("%w", err)
			continue
		}
		if tree, err := logbook.DecodeJSON(send.Data); err == nil {
			s.checkTree(tree)
		}
	}
}

// checkTree checks the texts of a JSON value.
func (s *Step) checkTree(tree any) {
	switch node := tree.(type) {
	case string:
		s.checkTemplate("signal data", node)
	case []any:
		for _, inner := range node {
			s.checkTree(inner)
		}
	case map[string]any:
		for _, inner := range node {
			s.checkTree(inner)
		}
	}
}

// note describes a signal in a plan.
func (s *Send) note() string {
	to := "job " + s.Job
	if s.Key != "" {
		to = "the job with key " + s.Key
	}
	return fmt.Sprintf("sends signal %s to %s", s.Name, to)
}
