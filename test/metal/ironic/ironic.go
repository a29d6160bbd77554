// Copyright The karpenter-provider-metal3 Authors.
// SPDX-License-Identifier: Apache-2.0

// Package ironic runs a real Ironic: API and conductor in one process, as hack/ironic.sh unpacked it,
// without authentication, its database a file, and the inspector as another one, if servers are behind IPMI. This process also runs what
// it needs: a web server for its boot media, and the bridge between it and baremetal-operator.
package ironic

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"text/template"
	"time"

	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/cluster/process"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/freeport"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/bridge"
	"github.com/karpenter-provider-metal3/karpenter-provider-metal3/test/metal/web"
)

// Names of the processes, and of their programs.
const (
	Name      = "ironic"
	inspector = "ironic-inspector"
	dnsmasq   = "dnsmasq"
)

// usualPort is where others expect Ironic.
const usualPort = 6385

// drivers are the hardware types that Ironic needs to register servers.
var drivers = []string{"ipmi", "redfish"}

// Config says how to run Ironic.
type Config struct {
	// Tree is the directory that hack/ironic.sh made, bin/ironic.
	Tree string
	// Host is the name or address at which BMCs and agents reach Ironic. It has a free port of an address, and its usual port of a name.
	Host string
	// Dir is where database, settings and published boot media go. It is made.
	Dir        string
	Supervisor *process.Supervisor
	// Inspector says that the inspector runs, too. Servers behind IPMI need it: others are inspected by their BMCs.
	Inspector bool
	// Provisioning are the networks that servers boot by, which reach Host; none if no server does.
	Provisioning []Provisioning
	// Guard is between agents and Ironic, which other machines do not reach then. Nil has agents reach Ironic itself.
	Guard func(http.Handler) http.Handler
	// AgentTimeout is how long Ironic waits for the agent of a server that it has switched on, in whole seconds; zero
	// means a minute.
	AgentTimeout time.Duration
	// PowerTimeout is how long a server may take to change its power, in whole seconds; zero means 20 seconds.
	PowerTimeout time.Duration
	// Environment holds KEY=VALUE pairs for Ironic's process.
	Environment []string
}

// Provisioning is a network in which dnsmasq serves DHCP, and TFTP from the directory that Ironic writes for iPXE.
type Provisioning struct {
	// Interface of this machine in that network.
	Interface string
	// First and Last are the addresses that servers get while they boot.
	First, Last netip.Addr
}

// dnsmasqArguments are those of dnsmasq, without settings from elsewhere and without DNS. Another user's rights, which --no-daemon leaves
// out, would keep the kernel from ending it with this process.
func dnsmasqArguments(dir string, networks []Provisioning) []string {
	arguments := []string{
		"--no-daemon", "--conf-file=/dev/null", "--log-dhcp", "--port=0", "--bind-interfaces",
		"--dhcp-leasefile=" + filepath.Join(dir, "leases"), "--enable-tftp", "--tftp-root=" + filepath.Join(dir, "http"),
		"--dhcp-boot=" + bootScript,
	}
	for _, p := range networks {
		arguments = append(arguments, "--interface="+p.Interface, fmt.Sprintf("--dhcp-range=%s,%s", p.First, p.Last))
	}
	return arguments
}

// bootScript is what Ironic writes for iPXE to begin with: it leads to the configuration of a MAC address.
const bootScript = "boot.ipxe"

// Ironic is a running Ironic. It must be closed. Its process ends with the supervisor.
type Ironic struct {
	// URL of Ironic for agents, without a version.
	URL string
	// Endpoint is the URL, version included, of the bridge to it, for baremetal-operator.
	Endpoint string
	// FilesURL is where servers find what they boot from by network.
	FilesURL string

	// api is the URL of Ironic itself on this machine.
	api                  string
	files, bridge, guard *web.Server
}

// Check returns an error with what is missing to run Ironic, and how to get it.
func Check(tree string) error {
	for _, file := range []string{Name, inspector, dnsmasq, "ipmi_sim", "schema.sqlite", "inspector.sqlite"} {
		if _, err := os.Stat(filepath.Join(tree, file)); err != nil {
			return fmt.Errorf("there is no Ironic in %s: run `make ironic`, which unpacks Debian's (%w)", tree, err)
		}
	}
	return nil
}

// Start starts Ironic, and returns when its conductor has its driver.
func Start(ctx context.Context, config Config) (*Ironic, error) {
	if err := Check(config.Tree); err != nil {
		return nil, err
	}
	ports, err := freeport.Reserve(2)
	if err != nil {
		return nil, err
	}
	port, inspectorPort := ports[0], ports[1]
	if _, err := netip.ParseAddr(config.Host); err != nil {
		port = usualPort
	}
	i := &Ironic{URL: "http://" + net.JoinHostPort(config.Host, strconv.Itoa(port))}
	if err := i.start(ctx, config, port, inspectorPort); err != nil {
		return nil, errors.Join(err, i.Close())
	}
	return i, nil
}

func (i *Ironic) start(ctx context.Context, config Config, port, inspectorPort int) error {
	var err error
	if i.files, err = web.Start(config.Host, http.FileServer(http.Dir(filepath.Join(config.Dir, "http")))); err != nil {
		return err
	}
	listen, callback := "0.0.0.0", config.Host
	if config.Host == web.Loopback {
		// Loopback as callback, in a form that Ironic does not refuse: agents are usually on other machines.
		listen, callback = web.Loopback, "[::ffff:127.0.0.1]"
	}
	upstream, err := url.Parse(fmt.Sprintf("http://%s:%d", web.Loopback, port))
	if err != nil {
		return err
	}
	if i.bridge, err = web.Start(web.Loopback, bridge.New(upstream)); err != nil {
		return err
	}
	i.Endpoint, i.FilesURL, i.api = i.bridge.URL+"/v1/", i.files.URL, upstream.String()
	listenAPI := listen
	if config.Guard != nil {
		if i.guard, err = web.Start(config.Host, config.Guard(httputil.NewSingleHostReverseProxy(upstream))); err != nil {
			return err
		}
		listenAPI, i.URL = web.Loopback, i.guard.URL
	}
	s := settings{
		Dir: config.Dir, Listen: listen, ListenAPI: listenAPI, API: i.api, CallbackHost: callback, Port: port,
		InspectorPort: inspectorPort,
		URL:           i.URL, FilesURL: i.files.URL,
		AgentTimeout: seconds(config.AgentTimeout, time.Minute), PowerTimeout: seconds(config.PowerTimeout, 20*time.Second),
	}
	if err := s.write(config.Tree); err != nil {
		return err
	}
	programs := map[string][]string{Name: {"--config-file", s.path(Name)}}
	if config.Inspector {
		programs[inspector] = []string{"--config-file", s.path(inspector)}
	}
	if len(config.Provisioning) > 0 {
		programs[dnsmasq] = dnsmasqArguments(config.Dir, config.Provisioning)
	}
	for program, arguments := range programs {
		err := config.Supervisor.Start(process.Spec{
			Name: program, Path: filepath.Join(config.Tree, program), Args: arguments, Env: config.Environment,
			// It serves the operator, so it ends after the operator.
			Rank: cluster.RankControllers,
		})
		if err != nil {
			return err
		}
	}
	if err := cluster.Await(ctx, fmt.Sprintf("Ironic's conductor to have the drivers %v", drivers), i.ready); err != nil || !config.Inspector {
		return err
	}
	return cluster.AwaitURL(ctx, inspector, http.DefaultClient, fmt.Sprintf("http://%s:%d/v1", web.Loopback, inspectorPort))
}

func seconds(given, otherwise time.Duration) int {
	if given == 0 {
		given = otherwise
	}
	return int(given / time.Second)
}

// ready returns an error until Ironic has its drivers: the API works before the conductor has any.
func (i *Ironic) ready(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, i.api+"/v1/drivers", nil)
	if err != nil {
		return err
	}
	request.Header.Set("X-OpenStack-Ironic-API-Version", bridge.Forwarded)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }() // the body was read completely
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the response is %s", response.Status)
	}
	var found struct {
		Drivers []struct {
			Name string `json:"name"`
		} `json:"drivers"`
	}
	if err := json.NewDecoder(response.Body).Decode(&found); err != nil {
		return fmt.Errorf("reading its drivers, %w", err)
	}
	var names []string
	for _, known := range found.Drivers {
		names = append(names, known.Name)
	}
	if slices.Sort(names); !slices.Equal(names, drivers) {
		return fmt.Errorf("it has %v", names)
	}
	return nil
}

// Close stops the servers in this process. The supervisor must stop Ironic first.
func (i *Ironic) Close() error {
	return errors.Join(i.guard.Close(), i.bridge.Close(), i.files.Close())
}

//go:embed *.conf.tmpl
var templates embed.FS

// databases are the empty ones in Ironic's tree, by program.
var databases = map[string]string{Name: "schema.sqlite", inspector: "inspector.sqlite"}

// settings are what differs from one Ironic to the next. Timeouts are in seconds.
type settings struct {
	Dir string
	// Listen is the address that the inspector is served on, ListenAPI that of Ironic's API, and URL where agents find it. API is where
	// this machine does.
	Listen, ListenAPI, API string
	// CallbackHost is where agents find the inspector.
	CallbackHost  string
	Port          int
	InspectorPort int
	URL           string
	FilesURL      string
	AgentTimeout  int
	PowerTimeout  int
}

// folders are what Ironic expects to exist.
var folders = []string{"state", "tmp", "http", "tftp", "images", "locks", "masters/iso", "masters/tftp", "masters/instance"}

// path is that of the settings of a program.
func (s settings) path(program string) string { return filepath.Join(s.Dir, program+".conf") }

// write writes the settings and empty databases of both programs, and empty folders.
func (s settings) write(tree string) error {
	for _, folder := range folders {
		if err := os.MkdirAll(filepath.Join(s.Dir, folder), 0o700); err != nil {
			return fmt.Errorf("making a directory for Ironic, %w", err)
		}
	}
	parsed, err := template.ParseFS(templates, "*.conf.tmpl")
	if err != nil {
		return fmt.Errorf("parsing the templates of Ironic's settings, %w", err)
	}
	for program, schema := range databases {
		empty, err := os.ReadFile(filepath.Join(tree, schema))
		if err != nil {
			return fmt.Errorf("reading the empty database of %s, %w", program, err)
		}
		if err := os.WriteFile(filepath.Join(s.Dir, program+".sqlite"), empty, 0o600); err != nil {
			return fmt.Errorf("writing the database of %s, %w", program, err)
		}
		var filled bytes.Buffer
		if err := parsed.ExecuteTemplate(&filled, program+".conf.tmpl", s); err != nil {
			return fmt.Errorf("filling in the settings of %s, %w", program, err)
		}
		if err := os.WriteFile(s.path(program), filled.Bytes(), 0o600); err != nil {
			return fmt.Errorf("writing the settings of %s, %w", program, err)
		}
	}
	return nil
}
