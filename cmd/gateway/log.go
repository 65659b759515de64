package main

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"dongate/config"
)

const (
	// logPerSecond is how many entries with one text and level are written per
	// second; a flood of refused nodes must not fill the disk.
	logPerSecond = 100
	// leftOutEvery is the time between two entries that say how many were left out.
	leftOutEvery = 10 * time.Second
)

// newLogger returns the logger that the configuration asks for, writing to out.
func newLogger(c config.Log, out io.Writer) (*zap.Logger, error) {
	log, _, err := newAdjustableLogger(c, out)
	return log, err
}

// newAdjustableLogger is newLogger with the level, which may be changed.
func newAdjustableLogger(c config.Log, out io.Writer) (*zap.Logger, zap.AtomicLevel, error) {
	level, err := zap.ParseAtomicLevel(c.Level)
	if err != nil {
		return nil, level, fmt.Errorf("log level: %w", err)
	}
	e := zap.NewProductionEncoderConfig()
	e.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	e.EncodeDuration = zapcore.StringDurationEncoder
	encoder := zapcore.NewJSONEncoder(e)
	if c.Format == "console" {
		e.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		e.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(e)
	}
	core := zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(out)), level)
	var left leftOut
	sampled := zapcore.NewSamplerWithOptions(core, time.Second, logPerSecond, 0, zapcore.SamplerHook(
		func(entry zapcore.Entry, d zapcore.SamplingDecision) {
			if d&zapcore.LogDropped != 0 {
				left.count(core, entry.Time)
			}
		}))
	return zap.New(sampled), level, nil
}

// leftOut counts the entries that the sampler dropped and says so now and then.
type leftOut struct {
	n    atomic.Int64
	next atomic.Int64 // when to say so, in Unix nanoseconds
}

func (l *leftOut) count(core zapcore.Core, now time.Time) {
	l.n.Add(1)
	next := l.next.Load()
	if now.UnixNano() < next || !l.next.CompareAndSwap(next, now.Add(leftOutEvery).UnixNano()) {
		return
	}
	entry := zapcore.Entry{Level: zapcore.WarnLevel, Time: now, Message: "log entries left out: too many alike per second"}
	if core.Enabled(entry.Level) {
		_ = core.Write(entry, []zapcore.Field{zap.Int64("count", l.n.Swap(0))})
	}
}
