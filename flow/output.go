package flow

import (
	"context"
	"io"
	"log/slog"
)

type outputKey struct{}

// Logger is the logger of a step. `conductord job logs` shows its lines while the step runs. If
// nothing keeps the output of steps, as in a test, or in a program whose conductor has no
// Options.Logs, it is slog.Default.
func Logger(ctx context.Context) *slog.Logger {
	output, kept := ctx.Value(outputKey{}).(io.Writer)
	if !kept {
		return slog.Default()
	}
	return slog.New(slog.NewTextHandler(output, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
}

// withoutTime leaves out the time of a record: each line of the output has its own time.
func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}

// Output is the writer for a step's log lines, such as the stderr of a command that the step
// runs. It never blocks or fails. If nothing keeps the output of steps, it is io.Discard.
func Output(ctx context.Context) io.Writer {
	if output, kept := ctx.Value(outputKey{}).(io.Writer); kept {
		return output
	}
	return io.Discard
}

// WithOutput sets the Output of a step. It is for code that makes calls.
func WithOutput(ctx context.Context, output io.Writer) context.Context {
	return context.WithValue(ctx, outputKey{}, output)
}
