package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"dongate/relayer/fhevm"
	relayerstore "dongate/relayer/store"
	"dongate/storage"
)

func newRelayer(w *world) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "relayer list|show|retry|pause|resume",
		Short: "Look after the relayer's requests",
		Long: `Look after the relayer's requests, in the database that the configuration's storage
section names. Gateways may go on running; no key and no chain is needed.

The state of a request is queued, processing, tx_in_flight, receipt_received,
completed, timed_out or failure; the last three are final.`,
		Example: `  gateway relayer list --config gateway.json --state failure
  gateway relayer show --config gateway.json 6f2b0c57-0b0e-4c39-9a55-3f2a7c1d9e10`,
	}
	cmd.AddCommand(newRelayerList(w), newRelayerShow(w), newRelayerRetry(w), newRelayerPause(w), newRelayerResume(w))
	return cmd
}

// runRelayer opens the database with the relayer's tables and calls use with them.
func (f *databaseFlags) runRelayer(w *world, cmd *cobra.Command, use func(ctx context.Context, s *relayerstore.Store) error) error {
	return f.run(w, cmd, false, func(ctx context.Context, db *storage.DB, l *loaded) error {
		if err := db.RequireSchema(ctx, relayerstore.Domain); err != nil {
			failed := storageFailure(err, l)
			if errors.Is(err, storage.ErrOlderSchema) && !l.config.Relayer.Enabled {
				_ = failed.withHint("relayer.enabled is false in %s: the relayer's tables are made for a configuration with it.", l.file)
			}
			return failed
		}
		err := use(ctx, relayerstore.New(db, relayerstore.Options{}))
		if coded := new(exitError); err == nil || errors.As(err, &coded) {
			return err
		}
		return storageFailure(err, l)
	})
}

// jobArgument takes the one argument of a command, a job id as clients know it.
func jobArgument(id *string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usage(cmd, errors.New("which request? give one job id, as 'gateway relayer list' shows it"))
		}
		parsed, err := uuid.Parse(args[0])
		if err != nil || len(args[0]) != 36 {
			return usage(cmd, fmt.Errorf("%.100q is no job id: it is a UUID", args[0]))
		}
		*id = parsed.String()
		return nil
	}
}

// findJob looks for a job of any kind.
func findJob(ctx context.Context, s *relayerstore.Store, id string) (relayerstore.Job, error) {
	for _, k := range fhevm.Kinds {
		j, err := s.Job(ctx, k, id)
		if !errors.Is(err, relayerstore.ErrNotFound) {
			return j, err
		}
	}
	return relayerstore.Job{}, fail(exitFailure, "there is no request with the job id %s", id).
		withHint("Final requests are deleted after relayer.expiry, if that is on.")
}

// The most rows of a list.
const (
	defaultList = 50
	maxList     = 1000
)

func newRelayerList(w *world) *cobra.Command {
	var (
		f                  databaseFlags
		kind, state, after string
		older              time.Duration
		limit              int
	)
	cmd := &cobra.Command{
		Use:   "list --config FILE [--kind KIND] [--state STATE] [--older AGE] [--limit N] [--after JOB] [--json]",
		Short: "List requests",
		Long: `List requests, kind after kind and the oldest first, at most --limit of them. When
there are more, the last line says how to see them; in JSON it is the member next.`,
		Example: `  gateway relayer list --config gateway.json --state failure
  gateway relayer list --config gateway.json --kind input_proof --state processing --older 10m
  gateway relayer list --config gateway.json --json | jq -r '.jobs[].jobId'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := jobQuery{kinds: fhevm.Kinds, states: fhevm.States, older: older, limit: limit}
			if kind != "" {
				k, err := oneOfWords(cmd, "kind", kind, fhevm.Kinds)
				if err != nil {
					return err
				}
				q.kinds = []fhevm.Kind{k}
			}
			if state != "" {
				s, err := oneOfWords(cmd, "state", state, fhevm.States)
				if err != nil {
					return err
				}
				q.states = []fhevm.State{s}
			}
			if limit < 1 || limit > maxList {
				return usage(cmd, fmt.Errorf("--limit is 1 to %d", maxList))
			}
			if after != "" {
				if err := jobArgument(&after)(cmd, []string{after}); err != nil {
					return err
				}
			}
			return f.runRelayer(w, cmd, func(ctx context.Context, s *relayerstore.Store) error {
				if after != "" {
					j, err := findJob(ctx, s, after)
					if err != nil {
						return err
					}
					q.after = &j
				}
				paused, err := s.Paused(ctx)
				if err != nil {
					return err
				}
				jobs, more, err := q.run(ctx, s, time.Now())
				if err != nil {
					return err
				}
				return newJobList(jobs, more, paused).print(w, f.asJSON)
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&kind, "kind", "", "only this `kind`: "+words(fhevm.Kinds))
	cmd.Flags().StringVar(&state, "state", "", "only this `state`: "+words(fhevm.States))
	cmd.Flags().DurationVar(&older, "older", 0, "only what has been in its state for this `time`, such as 10m or 24h")
	cmd.Flags().IntVar(&limit, "limit", defaultList, fmt.Sprintf("at most this many, 1 to %d", maxList))
	cmd.Flags().StringVar(&after, "after", "", "only what comes after this `job`")
	return cmd
}

func words[T ~string](all []T) string {
	var list []string
	for _, v := range all {
		list = append(list, string(v))
	}
	return strings.Join(list, ", ")
}

func oneOfWords[T ~string](cmd *cobra.Command, what, text string, all []T) (T, error) {
	for _, v := range all {
		if string(v) == text {
			return v, nil
		}
	}
	return "", usage(cmd, fmt.Errorf("%.100q is no %s: it is one of %s", text, what, words(all)))
}

func newRelayerShow(w *world) *cobra.Command {
	var (
		f  databaseFlags
		id string
	)
	cmd := &cobra.Command{
		Use:   "show --config FILE [--json] JOB",
		Short: "Show a request with its transactions and events",
		Long: `Show a request: its state, why it failed, every transaction that was signed for it
with what became of it, and what the chain has answered.`,
		Example: `  gateway relayer show --config gateway.json 6f2b0c57-0b0e-4c39-9a55-3f2a7c1d9e10
  gateway relayer show --config gateway.json --json 6f2b0c57-0b0e-4c39-9a55-3f2a7c1d9e10`,
		Args: jobArgument(&id),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.runRelayer(w, cmd, func(ctx context.Context, s *relayerstore.Store) error {
				j, err := findJob(ctx, s, id)
				if err != nil {
					return err
				}
				attempts, err := s.Attempts(ctx, j.Kind, j.ID)
				if err != nil {
					return err
				}
				var shares []relayerstore.Share
				if j.Kind == fhevm.KindUserDecrypt {
					if shares, err = s.Shares(ctx, j.ID); err != nil {
						return err
					}
				}
				return newJobDetails(j, attempts, shares).print(w, f.asJSON, time.Now())
			})
		},
	}
	f.add(cmd)
	return cmd
}

func newRelayerRetry(w *world) *cobra.Command {
	var (
		f  databaseFlags
		id string
	)
	cmd := &cobra.Command{
		Use:   "retry --config FILE [--json] JOB",
		Short: "Insert a failed or timed-out request again",
		Long: `Insert a request that failed or timed out once more, as if its client had sent it
again, and print the new request's job id. The old one stays as it is. Where a
request with the same content lives or is completed already, that one's id is
printed and nothing is inserted.`,
		Example: `  gateway relayer retry --config gateway.json 6f2b0c57-0b0e-4c39-9a55-3f2a7c1d9e10`,
		Args:    jobArgument(&id),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.runRelayer(w, cmd, func(ctx context.Context, s *relayerstore.Store) error {
				j, err := findJob(ctx, s, id)
				if err != nil {
					return err
				}
				if j.State != fhevm.StateFailure && j.State != fhevm.StateTimedOut {
					return fail(exitFailure, "%s is %s: only what failed or timed out can be tried again", id, j.State)
				}
				made, inserted, err := s.Insert(ctx, relayerstore.NewJob{
					Kind: j.Kind, ExtJobID: uuid.NewString(), IntJobID: j.IntJobID, Request: j.Request, ReqType: j.ReqType,
				})
				if err != nil {
					return err
				}
				if f.asJSON {
					return w.printJSON(retryReport{JobID: made, Inserted: inserted})
				}
				if !inserted {
					fmt.Fprintln(w.stderr, "nothing was inserted: this request has the same content")
				}
				_, err = fmt.Fprintln(w.stdout, made)
				return err
			})
		},
	}
	f.add(cmd)
	return cmd
}

// retryReport is the output of relayer retry.
type retryReport struct {
	JobID    string `json:"jobId"`
	Inserted bool   `json:"inserted"` // false: it was there
}

func newRelayerPause(w *world) *cobra.Command {
	return newRelayerSwitch(w, true, &cobra.Command{
		Use:   "pause --config FILE [--json]",
		Short: "Send no further requests to the chain",
		Long: `Send no further requests to the chain, whichever gateway dispatches and however often
it starts, until 'gateway relayer resume'. Clients' requests are still taken and
wait; what is in flight is followed to its end, with higher fees where needed.`,
		Example: `  gateway relayer pause --config gateway.json`,
	})
}

func newRelayerResume(w *world) *cobra.Command {
	return newRelayerSwitch(w, false, &cobra.Command{
		Use:     "resume --config FILE [--json]",
		Short:   "Send requests to the chain again",
		Long:    `Send requests to the chain again, after 'gateway relayer pause'.`,
		Example: `  gateway relayer resume --config gateway.json`,
	})
}

func newRelayerSwitch(w *world, pause bool, cmd *cobra.Command) *cobra.Command {
	var f databaseFlags
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return f.runRelayer(w, cmd, func(ctx context.Context, s *relayerstore.Store) error {
			if err := s.SetPaused(ctx, pause); err != nil {
				return err
			}
			if f.asJSON {
				return w.printJSON(pauseReport{pause})
			}
			text := "resumed: waiting requests are sent"
			if pause {
				text = "paused: no further request is sent"
			}
			_, err := fmt.Fprintln(w.stdout, text)
			return err
		})
	}
	f.add(cmd)
	return cmd
}

// pauseReport is the output of relayer pause and resume.
type pauseReport struct {
	Paused bool `json:"paused"`
}
