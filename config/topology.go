package config

// topology is services and DONs as written, before they are checked against
// each other. Element i of a list stands at path "services[i]" and so on.
type topology struct {
	services []serviceEntry
	sharded  []donEntry
	legacy   []legacyEntry
}

type serviceEntry struct {
	name     string
	dons     []string
	handlers []handlerEntry
}

type handlerEntry struct {
	name, service string
	config        Handler // meaningful when name is HandlerHTTPCapabilities
}

type donEntry struct {
	name   string
	f      int
	shards []shardEntry
}

type shardEntry struct{ nodes []Node }

// legacyEntry is one element of the older form's `dons`.
type legacyEntry struct {
	id       string
	f        int
	members  []Node
	name     string // handlerName
	config   Handler
	handlers []handlerEntry
}

func serviceFields(s *serviceEntry) []field {
	return []field{
		required(text("serviceName", &s.name, "", "The service's name.", checkServiceName)),
		required(strs("dons", &s.dons, "DON names", nil, "The DONs that serve it, by donName.", acceptText)),
		required(objects("handlers", &s.handlers, "What serves it.", handlerEntryFields)),
	}
}

func handlerEntryFields(h *handlerEntry) []field {
	return []field{
		required(text("name", &h.name, "", "The handler: `"+HandlerHTTPCapabilities+"`.", acceptText)),
		text("serviceName", &h.service, "", "The service's name once more, as files written by the network's tools have it; in the older form, the only place that names the service.", checkServiceName),
		configField("config", &h.name, &h.config, "The handler's configuration."),
	}
}

func donFields(d *donEntry) []field {
	return []field{
		required(text("donName", &d.name, "", "The DON's name, which is the id of its first shard.", checkName(64))),
		faultyField(&d.f),
		required(objects("shards", &d.shards, "The DON's groups of nodes; shard n > 0 has the id `donName_n`.", func(s *shardEntry) []field {
			return []field{required(objects("nodes", &s.nodes, "The shard's nodes, at least 3f+1.", nodeFields))}
		})),
	}
}

func nodeFields(n *Node) []field {
	return []field{
		text("name", &n.Name, "", "For people.", checkName(256)),
		required(addressField("address", &n.Address, "The node's address, 0x and 40 hex digits in any case, unique over the file.")),
	}
}

func legacyFields(d *legacyEntry) []field {
	return []field{
		required(text("donId", &d.id, "", "The DON's name and the id of its one shard.", checkName(64))),
		faultyField(&d.f),
		required(objects("members", &d.members, "The DON's nodes, at least 3f+1.", nodeFields)),
		text("handlerName", &d.name, "", "The one handler, in the oldest files.", acceptText),
		configField("handlerConfig", &d.name, &d.config, "That handler's configuration."),
		objects("handlers", &d.handlers, "The handlers, each with its service (`"+ServiceWorkflows+"` where none is named).", handlerEntryFields),
	}
}

// legacyField is read and never printed.
func legacyField(t *topology) field {
	f := reload(objects("dons", &t.legacy, "The older form, instead of services and shardedDONs.", legacyFields))
	f.write = nil
	return f
}

// faultyField is f, the one count whose 0 is a value of its own.
func faultyField(dst *int) field {
	const most = 10000
	return required(field{
		name: "f", kind: "an integer", bounds: "0 to 10000", scalar: 'n',
		doc:   "The most faulty nodes that each shard tolerates.",
		reset: func() { *dst = 0 },
		read: func(v value) {
			x, ok := v.float(true)
			if !ok || x < 0 || x > most {
				v.fail("an integer from 0 to 10000, with at least 3f+1 nodes in each shard")
				return
			}
			*dst = int(x)
		},
		write: func(p *printer) { p.integer(int64(*dst)) },
	})
}

// configField is bound by its handler's table when we implement the handler;
// the name stands before it in its own table and is bound by then.
func configField(name string, handler *string, dst *Handler, doc string) field {
	return field{
		name: name, kind: "an object", doc: doc,
		elem:  func() []field { return handlerFields(new(Handler)) },
		reset: func() { bindDefaults(handlerFields(dst)) },
		read: func(v value) {
			if *handler == HandlerHTTPCapabilities {
				v.b.members(v.n, v.path, handlerFields(dst))
			} else {
				v.b.checkRaw(v.n, v.path)
			}
		},
		write: func(p *printer) { p.object(handlerFields(dst)) },
	}
}

// bindDefaults puts every default of a table in place.
func bindDefaults(fields []field) {
	for i := range fields {
		if fields[i].fields != nil {
			bindDefaults(fields[i].fields)
		} else if fields[i].reset != nil {
			fields[i].reset()
		}
	}
}

// tableOf is the table bound to a finished Config, in the newer form.
func tableOf(c *Config) []field {
	t := &topology{}
	for _, s := range c.Services {
		t.services = append(t.services, serviceEntry{s.Name, s.DONs, []handlerEntry{{s.HandlerName, s.Name, s.Handler}}})
	}
	for _, d := range c.DONs {
		e := donEntry{name: d.Name, f: d.F}
		for _, s := range d.Shards {
			e.shards = append(e.shards, shardEntry{s.Nodes})
		}
		t.sharded = append(t.sharded, e)
	}
	return table(c, t)
}
