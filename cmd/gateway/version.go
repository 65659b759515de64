package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
)

// Set by the linker (-X main.version=… -X main.commit=…); the build information
// that Go embeds fills in what is not.
var (
	version string
	commit  string
)

// versionInfo says what this binary is.
type versionInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"` // "" when it is not known
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// Crypto is "cgo" when signatures are recovered by the C library and "pure"
	// when by Go code, which takes three to four times as long.
	Crypto string `json:"crypto"`
}

func readVersion() versionInfo {
	v := versionInfo{
		Version: version, Commit: commit, Go: runtime.Version(),
		Platform: runtime.GOOS + "/" + runtime.GOARCH, Crypto: "pure",
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	if v.Version == "" {
		v.Version = info.Main.Version
	}
	if v.Version == "" || v.Version == "(devel)" {
		v.Version = "dev"
	}
	modified := false
	for _, s := range info.Settings {
		switch s.Key {
		case "CGO_ENABLED":
			if s.Value == "1" {
				v.Crypto = "cgo"
			}
		case "vcs.revision":
			if v.Commit == "" {
				v.Commit = s.Value
			}
		case "vcs.modified":
			modified = s.Value == "true"
		}
	}
	if modified && commit == "" && v.Commit != "" {
		v.Commit += "-dirty"
	}
	return v
}

func newVersion(w *world) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version [--json]",
		Short: "Say which version this is and how it was built",
		Long: `Say which version this is and how it was built.

"crypto" tells who recovers signatures: "cgo" is the C library in go-ethereum,
"pure" is Go code, about three times as slow. A busy gateway wants "cgo".`,
		Example: `  gateway version
  gateway version --json`,
		RunE: func(*cobra.Command, []string) error {
			v := readVersion()
			if asJSON {
				return w.printJSON(v)
			}
			fmt.Fprintf(w.stdout, "gateway %s\n", v.Version)
			for _, row := range [][2]string{{"commit", v.Commit}, {"go", v.Go}, {"platform", v.Platform}, {"crypto", v.Crypto}} {
				if row[1] != "" {
					fmt.Fprintf(w.stdout, "  %-9s %s\n", row[0], row[1])
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// printJSON writes v as one line of JSON.
func (w *world) printJSON(v any) error {
	b, err := json.Marshal(v, jsontext.EscapeForHTML(false))
	if err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	_, err = w.stdout.Write(append(b, '\n'))
	return err
}
