package config

import "slices"

// legacyDONs turns the older form into services and DONs: a DON named "x" is
// one shard "x", and DONs whose handlers name the same service and are
// configured alike share it.
func (b *binder) legacyDONs(c *Config, t *topology) {
	ids := make(map[string]string)
	for i := range t.legacy {
		d, path := &t.legacy[i], index("dons", i)
		if b.bad[path] {
			c.DONs = append(c.DONs, DON{}) // keeps c.DONs in step with the file
			continue
		}
		b.faulty(path, d.id)
		if d.id == "" && b.ok(path+".donId") {
			b.fail(path+".donId", "required: write the DON's name")
		}
		don := DON{Name: d.id, F: d.f, Shards: []Shard{{ID: d.id, Nodes: d.members}}}
		b.shardSize(path, "members", d.members, d.f, path+".f")
		b.uniqueShards(don, path+".donId", ids)
		c.DONs = append(c.DONs, don)
		b.legacyHandlers(c, d, path)
	}
	if len(c.Services) == 0 && len(b.problems) == 0 {
		b.fail("dons", "no DON has a handler that this gateway implements; add %q to one", HandlerHTTPCapabilities)
	}
}

func (b *binder) legacyHandlers(c *Config, d *legacyEntry, path string) {
	switch {
	case d.name != "" && len(d.handlers) > 0:
		b.fail(path+".handlerName", "beside handlers; move this handler there, or remove handlers")
	case d.name != "":
		if b.implemented(c, d.name, path+".handlerName") {
			b.handlerRules(&d.config, path+".handlerConfig")
			b.legacyService(c, d, path, "", &d.config, path+".handlerName")
		}
	case len(d.handlers) == 0:
		if b.ok(path+".handlerName", path+".handlers") {
			b.fail(path+".handlers", "required: write one handler, %q, here or as handlerName", HandlerHTTPCapabilities)
		}
	default:
		if b.written(path + ".handlerConfig") {
			b.fail(path+".handlerConfig", "no effect beside handlers; move it to the handler's config")
		}
		for k := range d.handlers {
			h, at := &d.handlers[k], index(path+".handlers", k)
			if b.bad[at] || !b.implemented(c, h.name, at+".name") {
				continue
			}
			b.handlerRules(&h.config, at+".config")
			b.legacyService(c, d, path, h.service, &h.config, at+".name")
		}
	}
}

// legacyService adds a DON to the service its handler names. at is where the
// handler is named.
func (b *binder) legacyService(c *Config, d *legacyEntry, path, name string, h *Handler, at string) {
	if !b.ok(path + ".donId") {
		return // no name to serve, or another DON's
	}
	if name == "" {
		name = ServiceWorkflows
	}
	for _, s := range c.Services {
		if slices.Contains(s.DONs, d.id) {
			b.fail(at, "DON %s already has this handler, for service %s; a DON has at most one", shownText(d.id), shownText(s.Name))
			return
		}
	}
	i := slices.IndexFunc(c.Services, func(s Service) bool { return s.Name == name })
	if i < 0 {
		c.Services = append(c.Services, Service{Name: name, DONs: []string{d.id}, HandlerName: HandlerHTTPCapabilities, Handler: *h})
		return
	}
	if s := &c.Services[i]; s.Handler != *h {
		b.fail(at, "service %s has another configuration for DON %s; write the same for both, or name another service with serviceName",
			shownText(name), shownText(s.DONs[0]))
	} else {
		s.DONs = append(s.DONs, d.id)
	}
}
