package query_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"dongate/storage/query"
)

// Rendering against one fmt.Sprintf of the same text, which is the least a statement put together by hand costs.
func BenchmarkRender(b *testing.B) {
	build := func() query.Statement {
		return query.Select(txID, idx, amount).From(tokens).
			Where(query.And(wallet.Eq("w1"), query.EqLiteral(isDeleted, false), query.EqLiteral(state, confirmed), query.OlderThan(storedAt, time.Minute))).
			OrderBy(amount.Asc(), txID.Asc()).Limit(100)
	}
	text, _, err := build().Format(query.SQLite)
	if err != nil {
		b.Fatal(err)
	}
	// The same text with a hole wherever something varies.
	format := strings.NewReplacer("%", "%%", "$1", "$%d", "$2", "$%d", "$3", "$%d", `"tokens"`, `"%s"`).Replace(text)
	holes := []any{}
	numbers := 0
	for i := range len(format) - 1 {
		switch format[i : i+2] {
		case "%s":
			holes = append(holes, "tokens")
		case "%d":
			if i > 0 && format[i-1] == '$' {
				numbers++
				holes = append(holes, numbers)
			}
		}
	}
	if got := fmt.Sprintf(format, holes...); got != text {
		b.Fatalf("%s\n%s", got, text)
	}
	render := func(s query.Statement) {
		if _, _, err := s.Format(query.SQLite); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("build+render", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			render(build())
		}
	})
	b.Run("render", func(b *testing.B) {
		s := build()
		b.ReportAllocs()
		for b.Loop() {
			render(s)
		}
	})
	b.Run("sprintf", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = fmt.Sprintf(format, holes...)
		}
	})
	b.Run("ratio", func(b *testing.B) { // turn by turn, so that both have the same machine
		const turn = 1000
		var ours, floor time.Duration
		for b.Loop() {
			began := time.Now()
			for range turn {
				render(build())
			}
			between := time.Now()
			for range turn {
				_ = fmt.Sprintf(format, holes...)
			}
			ours += between.Sub(began)
			floor += time.Since(between)
		}
		b.ReportMetric(float64(ours)/float64(floor), "ratio")
	})
}
