package fhevm

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// statusPage is the mapping written down once more by hand: state, cause, status and label for everybody, then for the SDK.
var statusPage = map[State]map[Cause][2]Outcome{
	StateQueued:          {CauseNone: both(202, "")},
	StateProcessing:      {CauseNone: both(202, "")},
	StateTxInFlight:      {CauseNone: both(202, "")},
	StateReceiptReceived: {CauseNone: both(202, "")},
	StateCompleted:       {CauseNone: both(200, "")},
	StateTimedOut: {
		CauseNone:              {{504, "response_timed_out"}, {503, "response_timed_out"}},
		CauseResponseTimedOut:  {{504, "response_timed_out"}, {503, "response_timed_out"}},
		CauseReadinessTimedOut: {{504, "readiness_check_timed_out"}, {503, "readiness_check_timed_out"}},
	},
	StateFailure: {
		CauseNone:                  both(400, "request_error"),
		CauseReverted:              both(400, "request_error"),
		CauseTransactionFailed:     both(400, "request_error"),
		CauseReadinessFailed:       both(400, "request_error"),
		CauseInternal:              both(400, "request_error"),
		CauseNotAllowedOnHostACL:   both(400, "not_allowed_on_host_acl"),
		CauseInvalidSignature:      both(400, "validation_failed"),
		CauseProtocolPaused:        both(503, "protocol_paused"),
		CauseInsufficientBalance:   both(503, "insufficient_balance"),
		CauseInsufficientAllowance: both(503, "insufficient_allowance"),
		CauseHostACLFailed:         {{500, "host_acl_failed"}, {500, "internal_server_error"}},
	},
}

func both(status int, l Label) [2]Outcome { return [2]Outcome{{status, l}, {status, l}} }

func TestOutcomeOf(t *testing.T) {
	t.Parallel()
	require.Len(t, statusPage, len(States))
	for _, s := range States {
		for _, c := range Causes {
			want, ok := statusPage[s][c]
			if !ok {
				want = statusPage[s][CauseNone]
			}
			require.Equal(t, want[0], OutcomeOf(s, c, false), "%s %q", s, c)
			require.Equal(t, want[1], OutcomeOf(s, c, true), "%s %q, SDK", s, c)
		}
		require.Equal(t, OutcomeOf(s, CauseNone, false), OutcomeOf(s, "no such cause", false))
	}
	require.Equal(t, Outcome{500, LabelInternalServerError}, OutcomeOf("no such state", CauseNone, true))
}

// The SDK knows these statuses and labels and gives up on others (its version 0.4.3).
func TestOutcomeKnownToSDK(t *testing.T) {
	t.Parallel()
	known := map[int][]Label{
		200: {""}, 202: {""},
		400: {"malformed_json", "request_error", "not_allowed_on_host_acl", "missing_fields", "validation_failed"},
		401: {"unauthorized"},
		404: {"not_found"},
		429: {"rate_limited"},
		500: {"internal_server_error"},
		503: {"protocol_paused", "insufficient_balance", "insufficient_allowance", "gateway_not_reachable", "readiness_check_timed_out", "response_timed_out"},
	}
	for _, row := range StatusTable() {
		require.Contains(t, known[row.SDK.Status], row.SDK.Label, "%s %s", row.State, row.Cause)
	}
	for _, e := range []*Error{
		errMalformedJSON(), errMissing([]Detail{{"a", issueMissing}}), errValidation(Detail{"a", issueHex}), ErrBodyTooLarge(), ErrBodyUnreadable(), ErrMethodNotAllowed(),
		ErrUnauthorized(), ErrPathNotFound(), ErrJobNotFound(), ErrJobIDMalformed(), ErrOverloaded(), ErrQuotaExceeded(), ErrInternal(""), ErrDatabase(), ErrInvalidSignature(),
		ErrOperator(LabelProtocolPaused), ErrOperator(LabelInsufficientBalance), ErrOperator(LabelInsufficientAllowance), ErrOperator(LabelGatewayNotReachable),
		{Status: 400, Label: LabelHostChainNotSupported, Message: "m"}, {Status: 500, Label: LabelHostACLFailed, Message: "m"}, {Status: 504, Label: LabelResponseTimedOut, Message: "m"},
	} {
		sdk := e.ForSDK()
		require.Contains(t, known[sdk.Status], sdk.Label, e)
		require.Contains(t, Labels, e.Label)
		require.NotEmpty(t, e.Message)
		if sdk.Label == LabelMissingFields || sdk.Label == LabelValidationFailed {
			require.NotEmpty(t, sdk.Details, "the SDK insists on details with %s", sdk.Label)
		} else {
			require.Empty(t, sdk.Details)
		}
	}
	require.Len(t, Labels, 17)
}

func TestStates(t *testing.T) {
	t.Parallel()
	for _, s := range States {
		require.Equal(t, s == "completed" || s == "timed_out" || s == "failure", s.Final(), s)
	}
	for _, k := range Kinds {
		want := StateQueued
		if k == KindInputProof {
			want = StateProcessing
		}
		require.Equal(t, want, FirstState(k))
	}
}
