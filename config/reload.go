package config

import (
	"slices"
	"strings"
)

// Change is one member whose value differs between two configurations.
type Change struct {
	// Path is the member's place in the newer file form.
	Path string
	// Reloadable says that it takes effect while running; the others need a
	// restart.
	Reloadable bool
}

// Reload is what a process that runs with the configuration running comes to
// when it is handed file: everything that is safe to change while running as
// file has it, and the rest as it was. Neither argument is changed.
//
// A service of running that file does not name keeps its handler.
func Reload(running, file *Config) *Config {
	c := *running
	c.UserServer.reload(&file.UserServer)
	c.NodeServer.Listener.reload(&file.NodeServer.Listener)
	c.HTTPClient = file.HTTPClient
	c.DONs = file.DONs
	c.Log.Level = file.Log.Level
	c.Services = slices.Clone(running.Services)
	for i := range c.Services {
		if s := file.service(c.Services[i].Name); s != nil {
			c.Services[i].Handler = s.Handler
		}
	}
	c.Warnings = file.Warnings
	return &c
}

func (u *UserServer) reload(file *UserServer) {
	u.Listener.reload(&file.Listener)
	u.CORSEnabled, u.CORSAllowedOrigins = file.CORSEnabled, file.CORSAllowedOrigins
	u.PerAddress, u.TrustedProxies = file.PerAddress, file.TrustedProxies
}

// reload takes the certificate only while TLS stays as it is: what a listener
// without TLS is told about one waits for the restart that turns TLS on.
func (l *Listener) reload(file *Listener) {
	if l.TLSEnabled == file.TLSEnabled {
		l.TLSCertPath, l.TLSKeyPath = file.TLSCertPath, file.TLSKeyPath
	}
}

// Changes compares two configurations member by member, in the order of the
// reference, so that a reload can say what took effect and what could not.
// Lists count as one member, save the handlers' configurations, which are
// compared by service name. Secrets are compared and not shown.
func Changes(before, after *Config) []Change {
	var list []Change
	compare(tableOf(before), tableOf(after), "", &list)
	list = append(list, handlerChanges(before, after)...)
	return list
}

func compare(before, after []field, path string, list *[]Change) {
	for i := range before {
		x, y := &before[i], &after[i]
		at := join(path, x.name)
		switch {
		case x.fields != nil:
			compare(x.fields, y.fields, at, list)
		case at == "services", x.write == nil: // by handlerChanges, or never printed
		case x.printed() != y.printed():
			*list = append(*list, Change{at, x.reloadable})
		}
	}
}

// printed is the effective value as JSON, secrets in clear.
func (f *field) printed() string {
	p := newPrinter(true, "")
	f.write(p)
	return string(p.bytes())
}

// handlerChanges compares services: which there are and whom they serve needs
// a restart, their handlers' configurations do not.
func handlerChanges(before, after *Config) []Change {
	var list []Change
	same := len(before.Services) == len(after.Services)
	for i := range after.Services {
		s := &after.Services[i]
		old := before.service(s.Name)
		if old == nil || strings.Join(old.DONs, "\n") != strings.Join(s.DONs, "\n") {
			same = false
		}
		if old != nil {
			compare(handlerFields(&old.Handler), handlerFields(&s.Handler), index("services", i)+".handlers[0].config", &list)
		}
	}
	if !same {
		list = append(list, Change{Path: "services"})
	}
	return list
}

func (c *Config) service(name string) *Service {
	for i := range c.Services {
		if c.Services[i].Name == name {
			return &c.Services[i]
		}
	}
	return nil
}
