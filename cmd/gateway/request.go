package main

import (
	"errors"
	"os"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"dongate/auth"
	"dongate/client"
	"dongate/workflow"
)

// envURL lists gateways' client endpoints where --url does not.
const envURL = "DONGATE_URL"

// defaultURL is where a gateway with the default configuration listens.
const defaultURL = "http://127.0.0.1:5002/"

// maxInputBytes bounds --input; gateways take 1 MB unless they are configured
// otherwise.
const maxInputBytes = 64 << 20

// selectorFlags name a workflow, by its id or by owner, name and tag.
type selectorFlags struct{ id, owner, name, tag string }

func (s *selectorFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.id, "workflow-id", "", "the workflow's id: 1 to 64 hex `digits`, with or without 0x")
	f.StringVar(&s.owner, "owner", "", "the workflow owner's `address`, together with --name and --tag")
	f.StringVar(&s.name, "name", "", "the workflow's `name`, in clear")
	f.StringVar(&s.tag, "tag", "", "the workflow's `tag`")
}

// reference is what a request says about the workflow. Hex may be in any case
// here, as it is usually pasted; the protocol wants it in lower case.
func (s *selectorFlags) reference(cmd *cobra.Command) (workflow.Reference, error) {
	r := workflow.Reference{ID: strings.ToLower(s.id), Owner: strings.ToLower(s.owner), Name: s.name, Tag: s.tag}
	switch {
	case r == workflow.Reference{}:
		return r, usage(cmd, errors.New("which workflow? give --workflow-id, or --owner, --name and --tag"))
	case !r.HasID() && !r.Complete():
		return r, usage(cmd, errors.New("without --workflow-id a workflow needs all of --owner, --name and --tag"))
	}
	return r, nil
}

// requestFlags describe one trigger.
type requestFlags struct {
	workflow  selectorFlags
	input, id string
}

func (r *requestFlags) add(cmd *cobra.Command) {
	r.workflow.add(cmd)
	cmd.Flags().StringVar(&r.input, "input", "{}", "the `input`: a JSON object or array, @FILE for a file's content, - for standard input")
	cmd.Flags().StringVar(&r.id, "id", "", "the request `id`, 1 to 200 bytes without / (default: a random UUID)")
}

// request builds the request and applies every rule that the gateway would. What
// is wrong is the command line's fault.
func (r *requestFlags) request(w *world, cmd *cobra.Command) (*client.Prepared, error) {
	ref, err := r.workflow.reference(cmd)
	if err != nil {
		return nil, err
	}
	input, err := r.readInput(w, cmd)
	if err != nil {
		return nil, err
	}
	p, err := client.BuildRequest(client.Request{ID: r.id, Workflow: ref, Input: input})
	var refused *client.Error
	if errors.As(err, &refused) {
		return nil, usage(cmd, errors.New(refused.Message))
	}
	return p, err
}

// sign builds and signs the request.
func (r *requestFlags) sign(w *world, cmd *cobra.Command, key *keyFlags) (*client.Signed, auth.Signer, error) {
	p, err := r.request(w, cmd)
	if err != nil {
		return nil, nil, err
	}
	signer, err := key.signer(w)
	if err != nil {
		return nil, nil, err
	}
	s, err := client.Sign(p, signer, auth.TokenOptions{})
	return s, signer, err
}

// readInput returns the input as compact JSON, its numbers digit by digit as they
// were written.
func (r *requestFlags) readInput(w *world, cmd *cobra.Command) (jsontext.Value, error) {
	data, name := []byte(r.input), "--input"
	var err error
	switch path, isFile := strings.CutPrefix(r.input, "@"); {
	case r.input == "-":
		name = "standard input"
		data, err = readBounded(w.stdin, name, maxInputBytes)
	case isFile:
		name = path
		var f *os.File
		if f, err = os.Open(path); err != nil {
			return nil, fail(exitLocal, "%w", err)
		}
		defer f.Close()
		data, err = readBounded(f, name, maxInputBytes)
	}
	if err != nil {
		return nil, err
	}
	value := jsontext.Value(data)
	if err := value.Compact(); err != nil {
		return nil, usage(cmd, errors.New(name+" is not JSON: "+err.Error()))
	}
	return value, nil
}

// splitList splits at commas and white space.
func splitList(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) })
}

// gatewayURLs are the endpoints to send to: the flag's, or the environment's, or
// that of a gateway on this machine.
func gatewayURLs(w *world, flag []string) []string {
	if len(flag) > 0 {
		return flag
	}
	if list := splitList(w.env(envURL)); len(list) > 0 {
		return list
	}
	return []string{defaultURL}
}

// address is how the protocol writes a signer's address.
func address(s auth.Signer) string { return strings.ToLower(s.Address().Hex()) }
